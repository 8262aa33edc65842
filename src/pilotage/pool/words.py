"""Volumes and fractions as people read them."""

from __future__ import annotations


def volume(value: float) -> str:
    """Write a volume: `12`, `12.5`, `unlimited`."""
    if value == float("inf"):
        return "unlimited"
    return f"{round(value, 2):.12g}"


def share(value: float | None) -> str:
    """Write a fraction: `0.42`, or `undefined`."""
    return "undefined" if value is None else f"{value:.2f}"
