"""Values as expressions have them, written so that they read as the same or a safer value."""

from __future__ import annotations

import math
from collections.abc import Collection

from pilotage.base import text

_BYTES = frozenset({"memory", "disk"})
_SPANS = frozenset({"time", "time left"})
_BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20))
_DECIMAL = (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))
_LARGEST = 2**100
_TIMES = (("d", 86400), ("h", 3600), ("min", 60))


def figure(value: object, names: Collection[str] = (), *, up: bool = False) -> str:
    """Write a value of these attributes; a number that is cut goes down, or up."""
    match value:
        case None:
            return "undefined"
        case bool():
            return "true" if value else "false"
        case int() | float() if not abs(value) < _LARGEST:
            return "any"
        case int() | float() if _BYTES.intersection(names) and value >= 1000:
            return _size(value, up=up)
        case int() | float() if _SPANS.intersection(names) and value >= 60:
            return _span(value, up=up)
        case int() | float():
            return str(int(value)) if value == int(value) else repr(value)
        case str():
            quoted = text.show(value).replace("\\", "\\\\").replace("'", "\\'")
            return f"'{quoted}'"
        case list() | tuple():
            return f"[{', '.join(figure(one) for one in value)}]"
        case _:
            return "undefined"


def _size(value: float, *, up: bool) -> str:
    for unit, size in _BINARY:
        if value >= size and value % size == 0:
            return f"{int(value // size)}{unit}"
    for unit, size in _DECIMAL:
        if value >= size:
            return f"{_cut(value, size, up=up)}{unit}"
    return str(int(value))


def _span(value: float, *, up: bool) -> str:
    for unit, length in _TIMES:
        if value >= length and value % length == 0:
            return f"{int(value // length)}{unit}"
    return f"{math.ceil(value) if up else math.floor(value)}s"


def _cut(value: float, size: int, *, up: bool) -> str:
    whole = math.ceil(value) if up else math.floor(value)
    tenths = -(-whole * 10 // size) if up else whole * 10 // size
    return str(tenths // 10) if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}"
