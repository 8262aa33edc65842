"""Format volumes and fractions as text."""

from __future__ import annotations


def volume(value: float) -> str:
    """Write a volume: `12`, `12.5`, `unlimited`."""
    if value == float("inf"):
        return "unlimited"
    return f"{round(value, 2):.12g}"


def worth(cores: float) -> str:
    """Write what cores amount to: `1 core's worth`, `12 cores' worth`."""
    return "1 core's worth" if round(cores) == 1 else f"{cores:.0f} cores' worth"


def share(value: float | None) -> str:
    """Write a fraction: `0.42`, or `undefined`."""
    return "undefined" if value is None else f"{value:.2f}"
