"""The JSON schemas of messages as files: `python -m docs._ext.schemas` writes them anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from pilotage.bus import model, schema

from . import facts

FOLDER = Path(__file__).parents[1] / "schema"


def text(kind: str) -> str:
    """Write the schema of a kind of message, with what each field is for."""
    found = schema.schema(kind)
    _describe(found, schema.KINDS[kind])
    for name, part in found.get("$defs", {}).items():
        _describe(part, getattr(model, name))
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def _describe(part: dict[str, Any], owner: type[msgspec.Struct]) -> None:
    names = dict(zip(owner.__struct_fields__, owner.__struct_encode_fields__, strict=True))
    bases = [base for base in owner.__bases__ if base is not msgspec.Struct]
    for field in (field for kind in (*bases, owner) for field in facts.fields(kind)):
        part["properties"][names[field.name]].setdefault("description", field.about)


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    for kind in schema.KINDS:
        (FOLDER / f"{kind}.json").write_text(text(kind), encoding="utf-8")


if __name__ == "__main__":
    main()
