"""The JSON schemas of our messages, for those who write them by other programs."""

from __future__ import annotations

from typing import Any

import msgspec

from pilotage.bus.model import (
    Answer,
    Chain,
    Control,
    Course,
    Flow,
    Follow,
    Heartbeat,
    Job,
    Log,
    Message,
    Refusal,
    Status,
)

#: Every kind of message, by the name of its schema.
KINDS: dict[str, type[Message]] = {
    "job": Job, "chain": Chain, "flow": Flow, "course": Course, "control": Control,
    "follow": Follow, "status": Status, "log": Log, "heartbeat": Heartbeat, "answer": Answer,
    "refusal": Refusal,
}  # fmt: skip
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(kind: str) -> dict[str, Any]:
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
