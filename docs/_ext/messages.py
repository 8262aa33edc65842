"""The fields of every message, as Markdown tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pilotage.bus import model

from . import facts, schemas

_PARTS = ("Resources", "Input", "Output", "Reason", "Scheduler")
_WORDS = {
    "string": "text", "integer": "whole number", "number": "number", "boolean": "true or false",
    "array": "list", "object": "table",
}  # fmt: skip


def page() -> str:
    """Write all messages and what they are made of."""
    parts = [f"### `{kind}`\n\n{_body(schemas.KINDS[kind], kind)}" for kind in schemas.KINDS]
    known: dict[str, Any] = {}
    for kind in schemas.KINDS:
        known |= json.loads(schemas.text(kind)).get("$defs", {})
    for name in _PARTS:
        about = facts.sentence(getattr(model, name))
        title = f"### {name} of a message"
        parts.append(f"{title}\n\n{about}\n\n{_table(known[name])}")
    return "\n\n".join(parts)


def _body(owner: type, kind: str) -> str:
    return f"{facts.sentence(owner)}\n\n{_table(json.loads(schemas.text(kind)))}"


def _table(part: dict[str, Any]) -> str:
    return "\n".join(
        ["| field | type | default | meaning |", "| --- | --- | --- | --- |", *_rows(part)]
    )


def _rows(part: dict[str, Any]) -> Iterator[str]:
    needed = part.get("required", ())
    for name, field in part["properties"].items():
        default = "needed" if name in needed else _default(field.get("default", ""))
        about = field.get("description", "What it is.").replace("|", "\\|")
        yield f"| `{name}` | {_type(field)} | {default} | {about} |"


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(f"`{json.dumps(each)}`" for each in field["enum"] if each != "")
    if "$ref" in field:
        return "table"
    if "anyOf" in field:
        return _type(next(each for each in field["anyOf"] if each.get("type") != "null"))
    return _WORDS[field["type"]]


def _default(value: object) -> str:
    return "" if value in ("", None) or isinstance(value, dict | list) else f"`{json.dumps(value)}`"
