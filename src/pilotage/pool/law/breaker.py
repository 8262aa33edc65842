"""Pools whose drones die get no more orders for a while, and then one, to see."""

from __future__ import annotations

from msgspec.structs import replace

from .model import Care, Sight

#: Deaths in a row from which nothing is ordered.
_DEATHS = 3
#: Seconds without orders after these, doubled by each further death, and at most.
_PAUSE = 900.0
_LONGEST = 7200.0


def judge(care: Care, sight: Sight, now: float, *, alive: bool) -> Care:
    """Remember deaths; a drone that takes jobs after the pause closes the case."""
    if sight.failed:
        deaths = care.deaths + sight.failed
        if deaths < _DEATHS:
            return replace(care, deaths=deaths)
        doubled = _PAUSE * 2.0 ** min(8, (deaths - _DEATHS) // 2)
        return replace(care, deaths=deaths, until=now + min(_LONGEST, doubled))
    if alive and care.deaths:
        return replace(care, deaths=0, until=0.0)
    return care


def allowed(care: Care, sight: Sight, now: float) -> int:
    """Return how many drones may be on order: none in a pause, then one, else any number."""
    if care.deaths < _DEATHS:
        return 1 << 30
    return 0 if now < care.until else max(0, 1 - sight.pending)
