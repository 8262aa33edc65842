"""Entities of an RO-Crate: how they name each other, times, values and addresses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from pilotage import text

Entity = dict[str, Any]


class Entities:
    """Entities by their names; one that is told of twice is one."""

    def __init__(self) -> None:
        """Have none."""
        self.found: dict[str, Entity] = {}

    def add(self, key: str, kind: str | list[str], **facts: Any) -> str:  # noqa: ANN401
        """Note an entity and return its name; what has no value is left out."""
        if key not in self.found:
            known = {name: value for name, value in facts.items() if value not in ("", None, [])}
            self.found[key] = {"@id": key, "@type": kind, **known}
        return key


def ref(key: str) -> Entity:
    """Refer to an entity."""
    return {"@id": key}


def refs(keys: Iterable[str]) -> list[Entity]:
    """Refer to several, each once."""
    return [ref(key) for key in dict.fromkeys(keys)]


def time(at: float) -> str:
    """Write a time."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def between(begin: float | None, end: float | None) -> Entity:
    """Write when an action began and ended."""
    return {
        "startTime": time(begin) if begin is not None else "",
        "endTime": time(end) if end is not None else "",
    }


def kind_of(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Name the type of a value, as schema.org does."""
    kinds: Sequence[tuple[type, str]] = (
        (bool, "Boolean"), (int, "Integer"), (float, "Float"), (str, "Text")
    )  # fmt: skip
    return next((word for kind, word in kinds if isinstance(value, kind)), "PropertyValue")


def plain(value: Any) -> str | int | float:  # noqa: ANN401 - any JSON value
    """Write a value as one word or number."""
    return value if isinstance(value, (str, int, float)) else text.dump(value)


def named(value: str) -> str:
    """Make a word fit for a name."""
    return quote(value, safe="")


def path(value: str) -> str:
    """Make an address fit for a name; it may hold what a name may not."""
    return quote(value, safe="/:@%?&=+,;~!$'()*.#[]")
