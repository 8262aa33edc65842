"""Pools that somebody outside the hub steers: what was asked for last is carried out."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pilotage.base import units
from pilotage.pool.model import Decision, Reading
from pilotage.pool.words import volume


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was asked for from outside."""

    #: Cores that the pool shall provide.
    demand: float
    #: Why, in words, and who asked.
    words: str
    by: str
    #: When, in seconds since 1970.
    at: float
    #: Who else asked, and when last.
    other: str = ""
    other_at: float = 0.0

    def then(self, demand: float, words: str, by: str, at: float) -> Told:
        """Return what holds once somebody asks again."""
        if by == self.by:
            return Told(demand, words, by, at, self.other, self.other_at)
        return Told(demand, words, by, at, self.by, self.at)

    def silent(self, silence: float, now: float) -> bool:
        """Say whether nothing was heard for too long, or a clock was far ahead when it was."""
        return abs(now - self.at) > silence

    def rival(self, silence: float, now: float) -> str:
        """Say that two ask at once; empty if one does."""
        if not self.other or abs(now - self.other_at) > silence:
            return ""
        heard = units.for_people(max(0.0, now - self.other_at))
        return f"{self.other} asks too, {heard} ago: the last one wins"


class Carried(msgspec.Struct, frozen=True):
    """Decides what was asked for from outside."""

    told: Told | None
    silence: float
    after: Literal["hold", "minimum"]
    minimum: float
    now: float
    #: Seconds between two decisions.
    interval: float

    def decide(self, reading: Reading, elapsed: float, state: Any = None) -> Decision:  # noqa: ANN401, ARG002
        """Carry out what was asked for last, as long as somebody is heard of."""
        told = self.told
        if told is None:
            return Decision(reading.demand, unheard(None, self.silence, self.now), hold=True)
        if why := unheard(told, self.silence, self.now):
            if self.after == "minimum":
                return Decision(self.minimum, f"{why}: down to the minimum")
            return Decision(told.demand, f"{why}: it stays at {volume(told.demand)}")
        said = f"{told.by}: {told.words}" if told.words else f"{told.by} wants {_cores(told)}"
        rival = told.rival(self.silence, self.now)
        return Decision(told.demand, f"{said}; {rival}" if rival else said)


def unheard(told: Told | None, silence: float, now: float) -> str:
    """Say that nobody steers; empty if somebody does."""
    if told is None:
        return "nobody outside has asked for anything yet"
    if not told.silent(silence, now):
        return ""
    return f"nothing was heard of {told.by} for {units.for_people(abs(now - told.at))}"


def words(told: Told | None, silence: float, now: float) -> str:
    """Say who steers a pool and when that was heard of."""
    if told is None:
        return unheard(None, silence, now)
    heard = units.for_people(max(0.0, now - told.at))
    said = f"{told.by} wants {_cores(told)}, heard of {heard} ago"
    rival = told.rival(silence, now)
    return f"{said}; {rival}" if rival else said


def _cores(told: Told) -> str:
    return f"{volume(told.demand)} cores"
