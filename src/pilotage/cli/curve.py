"""Curves as lines of blocks on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pilotage.cli.answer import Shown, Style, Styled, line
from pilotage.draw.curves import blocks, resample
from pilotage.pool.words import volume

_LABEL = 10
_STYLES: tuple[Style, ...] = ("blue", "yellow", "green")


def curves(
    series: Mapping[str, Sequence[float | None]], top: float = 0.0, width: int = 60
) -> list[Shown]:
    """Draw series over the same time; each says how high it gets, and `top` is the least scale."""
    narrow = {name: resample(values, width) for name, values in series.items()}
    known = [value for values in narrow.values() for value in values if value is not None]
    top = max([top, *known])
    styles = dict(zip(series, _STYLES, strict=False))
    return [
        line(
            Styled(f"{name:<{_LABEL}}", "dim"), "  ", Styled(blocks(values, top), styles[name]),
            f"  up to {volume(round(max((v for v in values if v is not None), default=0.0)))}",
        )
        for name, values in narrow.items()
    ]  # fmt: skip
