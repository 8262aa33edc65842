"""Curves as text: a line of blocks for each, all on one scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pilotage.cli.answer import Shown, Style, Styled, line
from pilotage.pool.words import volume

_BLOCKS = "▁▂▃▄▅▆▇█"
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


def blocks(values: Sequence[float | None], top: float) -> str:
    """Draw values from 0 to `top`; where nothing is known, there is nothing."""
    return "".join(_block(value, top) for value in values)


def _block(value: float | None, top: float) -> str:
    if value is None:
        return " "
    height = math.ceil(value / top * len(_BLOCKS)) if top > 0 else 0
    return _BLOCKS[min(len(_BLOCKS), max(1, height)) - 1] if value > 0 else "·"


def resample(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return the means of so many parts of equal length, or the values if there are fewer."""
    count = len(values)
    if count <= width:
        return list(values)
    parts = (values[at * count // width : (at + 1) * count // width] for at in range(width))
    return [_mean(part) for part in parts]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
