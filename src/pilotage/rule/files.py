"""Rule files: read rules and recipes from TOML or Python, and compare two sets of rules."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pilotage.base import errors, names, toml
from pilotage.rule import draft as drafts
from pilotage.rule import python
from pilotage.rule.draft import Draft
from pilotage.rule.model import Rule
from pilotage.rule.span import SourceSpan

_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")
_END = " (at end of document)"


def toml_drafts(text: str, file: str, base: str, folder: str) -> tuple[list[Draft], list[Draft]]:
    """Read the recipes and the rules of a TOML file."""
    data = _parse(text, file)
    for name in data:
        if name not in ("recipe", "rule"):
            raise errors.BadRule(
                f"a rule file has no table {name!r}",
                hint=names.closest(name, ("recipe", "rule")),
                file=file,
                line=toml.line_of(text, (name,)),
                at=name,
            )
    found: list[list[Draft]] = []
    for kind in ("recipe", "rule"):
        tables = _table(data.get(kind, {}), SourceSpan(file, text, (kind,)))
        found.append([])
        for name, value in tables.items():
            place = SourceSpan(file, text, (kind, name))
            found[-1].append(Draft(name, place, _table(value, place), base, folder))
    return found[0], found[1]


def _parse(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise errors.BadRule("the rule file is nested too deeply", file=file) from None
    except ValueError as error:
        message = str(error)
        line = None
        if found := _LINE.search(message):
            line, message = int(found[1]), f"{message[: found.start()]} (column {found[2]})"
        elif message.endswith(_END):
            line, message = text.count("\n") + 1, message.removesuffix(_END) + " at the end"
        hint = "text stands in quotes, lists in brackets: https://toml.io"
        raise errors.BadRule(f"not TOML: {message}", hint=hint, file=file, line=line) from None


def _table(value: Any, place: SourceSpan) -> dict[str, Any]:  # noqa: ANN401 - what a person wrote
    if isinstance(value, dict):
        return value
    path = ".".join(place.path)
    raise errors.BadRule(
        f"this is {value!r}"[:60] + ", not a table",
        hint=f"write `[{path}]`" if len(place.path) > 1 else f"write `[{path}.NAME]`",
        file=place.file,
        line=place.line_of(),
        at=path,
    )


_IRRELEVANT = ("book", "line")


class RuleFile(msgspec.Struct, frozen=True):
    """The rules and recipes of one file."""

    #: What people call it.
    name: str
    #: The file, or the name of a rule file that has none.
    origin: str
    #: Its text.
    source: str
    #: Rules that are complete.
    rules: dict[str, Rule] = {}
    #: Recipes that rules of any rule file may name.
    recipes: dict[str, Draft] = {}
    #: Rules whose recipe is not in this rule file: the name of the rule and that of the recipe.
    inert: dict[str, str] = {}
    #: The same rules as they were written; `combine` completes them.
    unfinished: dict[str, Draft] = {}


class FieldChange(msgspec.Struct, frozen=True):
    """What a field of a rule was and is; None where it was or is not there."""

    #: Path of the field, such as `pattern.globs`.
    field: str
    old: Any
    new: Any


class RuleChange(msgspec.Struct, frozen=True):
    """The differences of one rule."""

    #: The rule.
    name: str
    #: Its fields that differ.
    fields: tuple[FieldChange, ...]


class Diff(msgspec.Struct, frozen=True):
    """How one set of rules differs from another; names in order."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[RuleChange, ...] = ()
    same: tuple[str, ...] = ()


def load(path: Path | str, base: str) -> RuleFile:
    """Read a rule file by its suffix: `.toml` or `.py`."""
    file = Path(path)
    try:
        source = file.read_text(encoding="utf-8")
    except OSError as error:
        raise errors.BadRule(f"cannot be read: {error.strerror}", file=str(file)) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise errors.BadRule("not UTF-8", file=str(file), line=line) from None
    folder = str(file.absolute().parent)
    if file.suffix == ".toml":
        return _book(file.name, str(file), source, toml_drafts(source, str(file), base, folder))
    if file.suffix == ".py":
        return _book(file.name, str(file), source, python.drafts(file, base))
    raise errors.BadRule(
        f"a rule file cannot end with {file.suffix!r}", hint="use `.toml` or `.py`", file=str(file)
    )


def load_text(name: str, text: str, base: str, folder: str) -> RuleFile:
    """Read a TOML rule file that is not in a file."""
    return _book(name, name, text, toml_drafts(text, name, base, folder))


def combine(books: Iterable[RuleFile]) -> dict[str, Rule]:
    """Combine the rules of all rule files; a rule may name a recipe of any of them.

    A rule whose recipe is nowhere is left out.
    """
    shelf = list(books)
    recipes = _unique((recipe for book in shelf for recipe in book.recipes.values()), "recipe")
    rules: dict[str, Rule] = {}
    for book in shelf:
        late = {
            name: drafts.rule_of(draft, recipes[book.inert[name]])
            for name, draft in book.unfinished.items()
            if book.inert[name] in recipes
        }
        for name, rule in (*book.rules.items(), *late.items()):
            if name in rules:
                first = rules[name]
                raise _twice("rule", name, (rule.book, rule.line), (first.book, first.line))
            rules[name] = rule
    return rules


def diff(old: Mapping[str, Rule], new: Mapping[str, Rule]) -> Diff:
    """Compare two sets of rules; where a rule is written does not matter."""
    changes = {name: _compare(old[name], new[name]) for name in sorted(old.keys() & new.keys())}
    return Diff(
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=tuple(RuleChange(name, fields) for name, fields in changes.items() if fields),
        same=tuple(name for name, fields in changes.items() if not fields),
    )


def digest(rule: Rule) -> str:
    """Return a number that changes with whatever changes what a rule matches or makes."""
    facts = [_builtins(part) for part in (rule.name, rule.pattern, rule.spec, rule.points)]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def dump(rule: Rule) -> str:
    """Write a rule as JSON."""
    return json.dumps(_builtins(rule))


def load_rule(text: str) -> Rule:
    """Undo `dump`."""
    return msgspec.convert(json.loads(text), Rule)


def _book(name: str, origin: str, source: str, found: tuple[list[Draft], list[Draft]]) -> RuleFile:
    recipes = _unique(found[0], "recipe")
    for recipe in recipes.values():
        drafts.check_recipe(recipe)
    book = RuleFile(name, origin, source, {}, recipes, {}, {})
    for rule in _unique(found[1], "rule").values():
        asked = drafts.recipe_of(rule)
        if asked and asked not in recipes:
            book.inert[rule.name] = asked
            book.unfinished[rule.name] = rule
        else:
            book.rules[rule.name] = drafts.rule_of(rule, recipes.get(asked))
    return book


def _unique(found: Iterable[Draft], kind: str) -> dict[str, Draft]:
    known: dict[str, Draft] = {}
    for draft in found:
        if draft.name in known:
            first = known[draft.name].place
            there = draft.place
            raise _twice(
                kind, draft.name, (there.file, there.line_of()), (first.file, first.line_of())
            )
        known[draft.name] = draft
    return known


def _twice(
    kind: str, name: str, here: tuple[str, int | None], first: tuple[str, int | None]
) -> errors.BadRule:
    place = ":".join(str(part) for part in first if part)
    return errors.BadRule(
        f"the name {name!r} is taken by the {kind} in {place}",
        hint="give one of them another name",
        file=here[0],
        line=here[1],
        at=f"{kind}.{name}",
    )


def _builtins(value: object) -> Any:  # noqa: ANN401 - JSON
    return msgspec.to_builtins(value, order="sorted")


def _compare(old: Rule, new: Rule) -> tuple[FieldChange, ...]:
    before, after = _flat(old), _flat(new)
    return tuple(
        FieldChange(field, before.get(field), after.get(field))
        for field in sorted(before.keys() | after.keys())
        if field not in _IRRELEVANT and before.get(field) != after.get(field)
    )


def _flat(value: object, path: str = "") -> dict[str, Any]:
    """Return every field by its path, also those that have their default."""
    if isinstance(value, msgspec.Struct):
        inner = {name: getattr(value, name) for name in value.__struct_fields__}
    elif isinstance(value, dict):
        inner = value
    else:
        return {path: _builtins(value)}
    found: dict[str, Any] = {}
    for name, field in inner.items():
        found |= _flat(field, f"{path}.{name}" if path else name)
    return found
