"""The JSON schemas of messages as files: `python -m docs._ext.schemas` writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from pilotage.bus import model

from . import facts

FOLDER = Path(__file__).parents[1] / "schema"
#: Every kind of message, by the name of its schema.
KINDS: dict[str, type[model.Body]] = {
    kind.__name__.lower(): kind
    for kind in (
        model.Job, model.Chain, model.Flow, model.Course, model.Control, model.Follow, model.Status,
        model.Log, model.Heartbeat, model.Answer, model.Refusal,
    )
}  # fmt: skip
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def text(kind: str) -> str:
    """Write the schema of a kind of message, with what each field is for."""
    found = _schema(kind)
    _describe(found, KINDS[kind])
    for name, part in found.get("$defs", {}).items():
        _describe(part, getattr(model, name))
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def _schema(kind: str) -> dict[str, Any]:
    """Return the schema of a kind of message, complete in itself."""
    (top,), parts = msgspec.json.schema_components([KINDS[kind]], ref_template="#/$defs/{name}")
    name = top["$ref"].rpartition("/")[2]
    found = parts.pop(name)
    _require(found)
    for part in parts.values():
        _require(part)
    return {
        "$schema": _DIALECT, "title": f"pilotage {kind}", **_without(found, "title"),
        **({"$defs": parts} if parts else {}),
    }  # fmt: skip


def _require(part: dict[str, Any]) -> None:
    """Say that a message must name its kind and version, which is how it is told from others."""
    if "kind" in part.get("properties", {}) and "v" in part["properties"]:
        part["required"] = sorted({*part.get("required", ()), "kind", "v"})


def _without(found: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != name}


def _describe(part: dict[str, Any], owner: type[msgspec.Struct]) -> None:
    names = dict(zip(owner.__struct_fields__, owner.__struct_encode_fields__, strict=True))
    for field in facts.all_fields(owner):
        part["properties"][names[field.name]].setdefault("description", field.about)


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    for kind in KINDS:
        (FOLDER / f"{kind}.json").write_text(text(kind), encoding="utf-8")


if __name__ == "__main__":
    main()
