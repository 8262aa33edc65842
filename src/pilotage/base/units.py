"""Durations and sizes as people write them, and back."""

from __future__ import annotations

import re

from pilotage.base import errors

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|w)\s*", re.ASCII)
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{2})(?::(\d{2}))?", re.ASCII)
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?\s*", re.ASCII | re.IGNORECASE)


def seconds(text: str | float) -> float:
    """Read `90`, `"1h 30m"`, `"250ms"` or Slurm's `"1-12:00:00"` as seconds."""
    if isinstance(text, (int, float)):
        value = _number(text)
    elif clock := _CLOCK.fullmatch(text.strip()):
        days, first, second, third = (float(part or 0) for part in clock.groups())
        value = days * 86400 + first * 3600 + second * 60 + third
    else:
        value = _parts(text)
    if not 0 <= value < float("inf"):
        message = f"a duration cannot be {text!r}"
        raise errors.UsageError(message)
    return value


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _parts(text: str) -> float:
    total, position = 0.0, 0
    for part in _PART.finditer(text):
        if part.start() != position:
            break
        total += float(part[1]) * _SECONDS[part[2]]
        position = part.end()
    if not text.strip() or position != len(text):
        try:
            return float(text)
        except ValueError:
            message = f"cannot read {text!r} as a duration"
            raise errors.UsageError(message, hint="write `90s`, `1h 30m` or `01:30:00`") from None
    return total


def size(text: str | float) -> int:
    """Read `1000`, `"8G"`, `"512 MiB"` as bytes; `k M G` are decimal, `Ki Mi Gi` binary."""
    if isinstance(text, (int, float)):
        value = _number(text)
    elif found := _SIZE.fullmatch(text):
        number, prefix, binary = found[1], found[2].lower(), found[3]
        power = "kmgtp".find(prefix) + 1 if prefix else 0
        value = float(number) * (1024**power if binary else _BYTES[prefix])
    else:
        message = f"cannot read {text!r} as a size"
        raise errors.UsageError(message, hint="write `8G`, `512MiB` or a number of bytes")
    if not 0 <= value < float("inf"):
        message = f"a size cannot be {text!r}"
        raise errors.UsageError(message)
    return int(value)


def for_people(value: float) -> str:
    """Write seconds as `3 m 12 s`."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    whole = round(value)
    parts = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, whole = divmod(whole, length)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def bytes_for_people(value: float) -> str:
    """Write bytes as `8.0 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
