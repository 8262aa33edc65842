"""How far hints are believed: as far as the drones agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .model import Hint, Need


def weigh(
    hints: Sequence[Hint],
    before: Mapping[str, Need],
    elapsed: float,
    *,
    patience: float,
    haste: float,
) -> dict[str, Need]:
    """Return what is needed: quick to fall, slow to rise, and nothing while there is room."""
    return {
        hint.name: _weigh(hint, before.get(hint.name, Need()), elapsed, patience, haste)
        for hint in hints
    }


def _weigh(hint: Hint, before: Need, elapsed: float, patience: float, haste: float) -> Need:
    # A drone with room and a job that waits for it cannot both be true for long.
    phantom = hint.waiting if hint.fits else min(before.phantom, hint.waiting)
    real = hint.waiting - phantom
    return Need(
        lasting=_rise(before.lasting, real, elapsed / patience),
        recent=_rise(before.recent, real, elapsed / haste),
        phantom=phantom,
    )


def _rise(before: float, now: float, part: float) -> float:
    return now if now < before else before + (now - before) * min(1.0, part)
