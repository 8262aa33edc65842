"""The rules of a project: read from rule files and flows, kept in the store."""

from __future__ import annotations

import contextlib
import hashlib
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from pilotage.base import errors, text, toml
from pilotage.base.names import closest
from pilotage.event import records
from pilotage.job.model import Workflow
from pilotage.rule import files as books
from pilotage.rule import trigger
from pilotage.rule.files import Diff
from pilotage.rule.model import Rule
from pilotage.store import Db

SUFFIXES = (".toml", ".py")
_GENERATION = "rules"
_IN_FORCE = "rules in force"
#: Stands where the file of a rule file would: the rule file was given as rules, not as text.
_OBJECTS = "rules as objects"
#: Reads the file of a workflow: returns its definition as plain values, with all parameters, and
#: adds the files of workflows that it names to the set.
FlowReader: TypeAlias = Callable[[str, set[str]], dict[str, Any]]


class LoadedRuleFiles(msgspec.Struct, frozen=True):
    """The result of reading all rule files."""

    #: The rules of the rule files that could be read.
    rules: dict[str, Rule]
    #: Rule files that could not, with the error; their rules stay as they were.
    failed: dict[str, errors.BadRule]
    #: Rules whose recipe no rule file has: name to the recipe's name.
    inert: dict[str, str]
    #: Files of workflows that rules start, those with mistakes among them.
    flows: frozenset[str] = frozenset()


class StoredRule(msgspec.Struct, frozen=True):
    """A rule as the store has it."""

    rule: Rule
    digest: str
    #: Whether it takes events: what its rule file says, unless a person has said otherwise since.
    enabled: bool
    #: Whether its rule file lets it take events.
    written: bool
    settled: bool
    hits: int
    loaded: float


def load(file: Path, base: Path, read_flow: FlowReader) -> books.RuleFile:
    """Read a rule file with the workflows that its rules start."""
    return _completed(books.load(file, str(base)), read_flow)


def _completed(one: books.RuleFile, read_flow: FlowReader) -> books.RuleFile:
    """Read the workflows that the rules of a rule file start."""
    rules = {name: complete(rule, _toml(one), read_flow) for name, rule in one.rules.items()}
    return msgspec.structs.replace(one, rules=rules)


def _toml(one: books.RuleFile) -> str:
    """Return the text of a rule file in which keys have lines."""
    return "" if one.origin.endswith(".py") else one.source


def read(db: Db, folder: Path, base: Path, read_flow: FlowReader) -> LoadedRuleFiles:
    """Read every rule file; a mistake in one leaves the others in force."""
    found: list[books.RuleFile] = []
    failed: dict[str, errors.BadRule] = {}
    for file in _files(folder):
        try:
            found.append(load(file, base, read_flow))
        except errors.BadRule as error:
            failed[str(file)] = error
    for name, origin, source, _ in db.rows("book_list"):
        try:
            found.append(_completed(_added(name, origin, source, base), read_flow))
        except errors.BadRule as error:
            failed[name] = error
    rules = None
    while rules is None:
        try:
            texts = {one.origin: _toml(one) for one in found}
            rules = {
                name: complete(rule, texts.get(rule.book, ""), read_flow)
                for name, rule in books.combine(found).items()
            }
        except errors.BadRule as error:
            # Each rule file that takes a name of another is left out, until the rest agree.
            left = [one for one in found if one.origin != error.file]
            if len(left) == len(found):
                raise
            failed[error.file], found = error, left
            rules = None
    inert = {
        name: recipe for one in found for name, recipe in one.inert.items() if name not in rules
    }
    return LoadedRuleFiles(rules, failed, inert, _workflows(rules.values(), failed.values()))


def _workflows(rules: Iterable[Rule], failed: Iterable[errors.BadRule]) -> frozenset[str]:
    """List the files of workflows, also of those with mistakes: they may be mended."""
    recipes = (rule.spec.recipe for rule in rules)
    found = {file for one in recipes if isinstance(one, Workflow) for file in one.files}
    return frozenset(found | {one.file for one in failed if isinstance(one, errors.BadFlow)})


def _files(folder: Path) -> list[Path]:
    """List the rule files of a folder; workflows that rules name may lie beside them."""
    return [file for file in _shown(folder) if not is_workflow(file)]


def _shown(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    names = [file for file in folder.iterdir() if file.suffix in SUFFIXES]
    return sorted(file for file in names if not file.name.startswith((".", "_")))


def _added(name: str, origin: str, source: str, base: Path) -> books.RuleFile:
    if origin == _OBJECTS:
        rules = (msgspec.convert(one, Rule) for one in text.load(source))
        return books.RuleFile(name, name, source, {rule.name: rule for rule in rules})
    if origin.endswith(".py"):
        return books.load(Path(origin), str(base))
    folder = str(Path(origin).parent) if origin else str(base)
    return books.load_text(name, source, str(base), folder)


def add(db: Db, file: Path, base: Path, now: float, read_flow: FlowReader) -> str:
    """Store a rule file; the caller applies all rule files after it."""
    origin = str(file.resolve())
    source = file.read_text(encoding="utf-8")
    load(file, base, read_flow)
    db.run("book_put", name=origin, origin=origin, source=source, now=now)
    return origin


def put(db: Db, name: str, rules: Iterable[Rule], now: float) -> None:
    """Store rules that a program made as a rule file; the caller applies all after it."""
    source = text.dump([msgspec.structs.replace(rule, book=name) for rule in rules])
    db.run("book_put", name=name, origin=_OBJECTS, source=source, now=now)


def known(db: Db) -> dict[str, StoredRule]:
    """Read the rules in force."""
    found = {}
    for name, _, digest, body, enabled, loaded, settled, hits in db.rows("rule_list"):
        rule = books.load_rule(body)
        written = rule.enabled
        rule = msgspec.structs.replace(rule, enabled=bool(enabled))
        found[name] = StoredRule(rule, digest, rule.enabled, written, bool(settled), hits, loaded)
    return found


def apply(db: Db, loaded: LoadedRuleFiles, now: float) -> Diff:
    """Apply the rules of the rule files; unchanged rules are left alone."""
    old = known(db)
    kept = {name: one.rule for name, one in old.items() if one.rule.book in loaded.failed}
    new = {**kept, **loaded.rules}
    for name in old.keys() - new.keys():
        db.run("rule_drop", name=name)
    changed = bool(old.keys() - new.keys())
    for name, rule in loaded.rules.items():
        before = old.get(name)
        asked = before is not None and before.written == rule.enabled
        enabled = before.enabled if before and asked else rule.enabled
        if before and asked and before.rule == msgspec.structs.replace(rule, enabled=enabled):
            continue
        changed = True
        db.run(
            "rule_put", name=name, book=rule.book, digest=books.digest(rule),
            body=books.dump(rule), enabled=int(enabled), now=now,
        )  # fmt: skip
    if changed:
        bump(db)
    return books.diff({name: one.rule for name, one in old.items()}, new)


def enable(db: Db, names: Iterable[str], *, on: bool) -> None:
    """Enable or disable rules."""
    for name in names:
        if db.value("rule_enable", name=name, enabled=int(on)) is None:
            message = f"there is no rule {name!r}"
            raise errors.NotFound(message, hint="`pilotage rule ls` lists the rules")
    bump(db)


def bump(db: Db) -> None:
    """Record that the rules changed, so that the running process reloads them."""
    records.advance(db, _GENERATION, str(int(records.cursor(db, _GENERATION) or 0) + 1))


def generation(db: Db) -> int:
    """Return the generation of the rules."""
    return int(records.cursor(db, _GENERATION) or 0)


def take_effect(db: Db, number: int) -> None:
    """Record that the rules of a generation are in effect."""
    records.advance(db, _IN_FORCE, str(number))


def in_force(db: Db) -> bool:
    """Return whether the running process has loaded the last change of the rules."""
    return int(records.cursor(db, _IN_FORCE) or 0) >= generation(db)


def fingerprint(folder: Path, flows: Iterable[str] = ()) -> str:
    """Return a fingerprint of the rule files and of the flows that rules start."""
    facts: list[Any] = []
    for file in (*_shown(folder), *map(Path, sorted(flows))):
        with contextlib.suppress(OSError):  # it left between the two looks
            found = file.stat()
            facts.append((file.name, found.st_ino, found.st_size, found.st_mtime_ns))
    return hashlib.blake2b(text.dump(facts).encode(), digest_size=8).hexdigest()


def summary(diff: Diff) -> str:
    """Summarise how the rules changed; empty if they did not."""
    changed = tuple(change.name for change in diff.changed)
    parts = (("new", diff.added), ("changed", changed), ("gone", diff.removed))
    return "; ".join(f"{word}: {', '.join(names)}" for word, names in parts if names)


_STEPS = re.compile(r"^\s*\[step[.\]]", re.MULTILINE)
_RULES = re.compile(r"^\s*\[(rule|recipe)[.\]]", re.MULTILINE)


def is_workflow(file: Path) -> bool:
    """Return whether a file in the rules folder is a flow that a rule names, not a rule file."""
    if file.suffix != ".toml":
        return False
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    if "step" not in source:
        return False
    try:
        found = tomllib.loads(source)
    except tomllib.TOMLDecodeError:
        # A mistake in a flow is reported with the rule that names it, not as one of a rule file.
        return bool(_STEPS.search(source)) and not _RULES.search(source)
    return "step" in found and found.keys().isdisjoint({"rule", "recipe"})


def complete(rule: Rule, source: str, read_flow: FlowReader) -> Rule:
    """Put the definition of its workflow into a rule; `source` is the text of a TOML file.

    Raise `BadRule` with the place of what is wrong: in the workflow, or in the rule.
    """
    recipe = rule.spec.recipe
    if not isinstance(recipe, Workflow) or recipe.flow:
        return rule
    found = {recipe.file}
    try:
        flow = read_flow(recipe.file, found)
    except OSError as error:
        raise _wrong(rule, source, "flow", f"cannot be read: {error.strerror}") from None
    _check_parameters(rule, flow.get("params", {}), source)
    whole = msgspec.structs.replace(recipe, flow=flow, files=tuple(sorted(found)))
    spec = msgspec.structs.replace(rule.spec, recipe=whole)
    return msgspec.structs.replace(rule, spec=spec)


def _check_parameters(rule: Rule, params: dict[str, object], source: str) -> None:
    """Refuse parameters that the workflow does not have, and those that would have no value."""
    for name in rule.spec.params:
        if name not in params:
            message = f"the flow has no parameter `{name}`"
            raise _wrong(rule, source, f"params.{name}", message, closest(name, params))
    given = {*rule.spec.params, *trigger.groups(rule.pattern), *rule.points[0]}
    for name, usual in params.items():
        if usual is None and name not in given:
            message = f"the parameter `{name}` of the flow has no value"
            hint = f"write it among the `params` of the rule: `{name} = …`"
            raise _wrong(rule, source, "flow", message, hint)


def _wrong(rule: Rule, source: str, at: str, message: str, hint: str = "") -> errors.BadRule:
    path = ["rule", rule.name, *at.split(".")]
    line = toml.line_of(source, path) if source else None
    return errors.BadRule(
        message, hint=hint, file=rule.book, line=line or rule.line, at=".".join(path)
    )
