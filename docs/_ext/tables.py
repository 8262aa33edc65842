"""Markdown tables made of the facts of the code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from pilotage.cli import about
from pilotage.event.model import Event, Kind
from pilotage.hub import config
from pilotage.job import machine
from pilotage.job.model import State
from pilotage.rule import schema, template

from . import commands, facts

_GROUPS: dict[str, tuple[str, ...]] = {
    "what it waits for": schema.TRIGGERS,
    "files": tuple(key for key, with_ in schema.TRIGGER_KEYS.items() if with_ == schema.FILES),
    "other triggers": tuple(
        key for key, with_ in schema.TRIGGER_KEYS.items() if with_ != schema.FILES
    ),
}


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def code(text: str) -> str:
    """Write text as code; nothing for nothing."""
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def plain_type(kind: str) -> str:
    """Write an annotation in words of TOML."""
    text = re.sub(r"\s*\|\s*None$", "", kind)
    choice = re.fullmatch(r"Literal\[(.*)\]", text)
    if choice:
        return " or ".join(f"`{each}`" for each in choice[1].replace("'", '"').split(", "))
    parts = [_WORDS.get(part.strip(), f"`{part.strip()}`") for part in _split(text)]
    return " or ".join(dict.fromkeys(parts))


_WORDS = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "Amount": "amount",
    "Texts": "text or list of texts",
    "tuple[str, ...]": "list of texts",
    "tuple[int, ...]": "list of whole numbers",
    "tuple[State, ...]": "list of states",
    "dict[str, Any]": "table",
    "dict[str, str]": "table of texts",
    "dict[str, str | int | float]": "table of texts or numbers",
    "dict[str, App]": "tables",
    "list[Any]": "list",
    "RetryText": "table",
    "LimitText": "table",
    "GatherText": "table",
    "OnChange": '`"cancel"` or `"latest"` or `"ignore"`',
}


def _split(text: str) -> list[str]:
    """Split a union at its bars, but not within brackets."""
    parts, depth, last = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "|" and depth == 0:
            parts.append(text[last:at])
            last = at + 1
    return [*parts, text[last:]]


def settings() -> str:
    """Write every table of `pilotage.toml`."""
    parts = []
    for section in facts.fields(config.Settings):
        owner = type(getattr(config.Settings(), section.name))
        head = f"[{section.name}]"
        if section.name == "app":
            owner, head = config.App, "[app.NAME]"
        about = facts.sentence(owner)
        rows = [_setting(field) for field in facts.fields(owner)]
        parts.append(f"## `{head}`\n\n{about}\n\n" + table(("key", "type", "default", "meaning"), rows))
    return "\n\n".join(parts)


def _setting(field: facts.Field) -> tuple[str, str, str, str]:
    default = field.default.replace("'", '"')
    return code(field.name), plain_type(field.kind), code(_toml(default)), field.about


def _toml(default: str) -> str:
    return {"True": "true", "False": "false", "None": "", "()": "[]"}.get(default, default)


def rule_keys() -> str:
    """Write the keys that only a rule has, by what they belong to."""
    known = {field.name: field for field in facts.fields(schema.RuleText)}
    parts = []
    grouped: set[str] = set()
    for title, names in _GROUPS.items():
        grouped |= set(names)
        rows = [_key(known[name], schema.TRIGGER_KEYS.get(name, ())) for name in names]
        heads = ("key", "type", "meaning")
        if title == "other triggers":
            heads = ("key", "goes with", "type", "meaning")
            rows = [(row[0], _with(name, schema.TRIGGER_KEYS), *row[1:]) for name, row in zip(names, rows, strict=True)]
        parts.append(f"### {title.capitalize()}\n\n" + table(heads, rows))
    rows = [_key(field) for name, field in known.items() if name not in grouped]
    parts.append("### What it makes\n\n" + table(("key", "type", "meaning"), rows))
    return "\n\n".join(parts)


def recipe_keys() -> str:
    """Write the keys of a recipe, which a rule takes too."""
    known = {field.name: field for field in facts.fields(schema.RecipeText)}
    first = [_key(known[name]) for name in schema.RECIPES]
    some = [(*_key(known[name])[:1], _with(name, schema.RECIPE_KEYS), *_key(known[name])[1:]) for name in schema.RECIPE_KEYS]
    rest = [
        _key(field) for name, field in known.items()
        if name not in schema.RECIPES and name not in schema.RECIPE_KEYS
    ]  # fmt: skip
    heads = ("key", "type", "meaning")
    return "\n\n".join(
        [
            "### What runs\n\nExactly one of these.\n\n" + table(heads, first),
            "### How it runs\n\n" + table(("key", "goes with", "type", "meaning"), some),
            "### What every job takes\n\n" + table(heads, rest),
        ]
    )


def sub_tables() -> str:
    """Write the keys of the tables within rules."""
    parts = []
    for name, owner in (
        ("retry", schema.RetryText),
        ("limit", schema.LimitText),
        ("gather", schema.GatherText),
    ):
        rows = [_setting(field) for field in facts.fields(owner)]
        about = facts.sentence(owner)
        parts.append(f"### `{name}`\n\n{about}\n\n" + table(("key", "type", "default", "meaning"), rows))
    return "\n\n".join(parts)


def _key(field: facts.Field, _: Sequence[str] = ()) -> tuple[str, str, str]:
    about = field.about
    default = _toml(field.default.replace("'", '"'))
    if default not in ("", "{}", "[]"):
        about = f"{about} Default: `{default}`."
    return code(field.name), plain_type(field.kind), about


def _with(name: str, keys: dict[str, tuple[str, ...]]) -> str:
    return ", ".join(code(each) for each in keys[name])


def keywords() -> str:
    """Write every keyword of templates."""
    rows = [(f"`{{{name}}}`", f"{about}") for name, about in template.KEYWORDS.items()]
    return table(("keyword", "stands for"), rows)


def kinds() -> str:
    """Write every kind of event."""
    rows = [(code(kind), about) for kind, about in facts.members(Kind).items()]
    return table(("kind", "meaning"), rows)


def event_fields() -> str:
    """Write the fields of an event."""
    rows = [(code(field.name), field.about) for field in facts.fields(Event)]
    return table(("field", "meaning"), rows)


def states() -> str:
    """Write every state of a job, and what may follow it."""
    rows = []
    for state, fact in machine.FACTS.items():
        follow = [code(each) for each in State if each in machine.TRANSITIONS[state]]
        final = "yes" if fact.final else ""
        rows.append((code(state), fact.sentence, final, ", ".join(follow)))
    return table(("state", "meaning", "final", "may become"), rows)


def errors() -> str:
    """Write the tree of errors."""
    rows = []
    for depth, kind in facts.error_tree():
        name = "\N{NO-BREAK SPACE}" * 4 * depth + code(kind.__name__)
        link = f"[{kind.code}](#{kind.code.lower()})"
        again = "yes" if kind.retryable else ""
        rows.append((link, name, str(kind.exit_status), again, facts.sentence(kind)))
    return table(("code", "error", "exit status", "may pass by itself", "meaning"), rows)


def error_sections() -> str:
    """Write a section for each error: what it means and what to do."""
    parts = []
    for _, kind in facts.error_tree():
        again = " Trying again may help." if kind.retryable else ""
        advice = about.ADVICE[kind.code]
        advice = advice[:1].upper() + advice[1:]
        parts.append(
            f"({kind.code.lower()})=\n## {kind.code}: {kind.__name__}\n\n"
            f"{facts.sentence(kind)}{again} Exit status {kind.exit_status}.\n\n{advice}"
        )
    return "\n\n".join(parts)


def exits() -> str:
    """Write every exit status."""
    return table(("status", "meaning"), [(str(key), each) for key, each in about.EXITS.items()])


def selectors() -> str:
    """Write how jobs are named."""
    return table(("selector", "means"), [(code(key), each) for key, each in about.SELECTORS.items()])


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings,
    "rule-keys": rule_keys,
    "recipe-keys": recipe_keys,
    "sub-tables": sub_tables,
    "keywords": keywords,
    "kinds": kinds,
    "event-fields": event_fields,
    "states": states,
    "errors": errors,
    "error-sections": error_sections,
    "exits": exits,
    "selectors": selectors,
    "commands": commands.page,
}
