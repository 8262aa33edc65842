"""Demands of external controllers."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pilotage.base import units
from pilotage.pool.model import Decision, Reading
from pilotage.pool.words import volume


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was asked for from outside."""

    #: Cores that the pool should provide.
    demand: float
    #: The reason as text, and who asked.
    words: str
    by: str
    #: When, in seconds since 1970.
    at: float
    #: The other controller, and when it asked last.
    other: str = ""
    other_at: float = 0.0

    def then(self, demand: float, words: str, by: str, at: float) -> Told:
        """Return the state after another request."""
        if by == self.by:
            return Told(demand, words, by, at, self.other, self.other_at)
        return Told(demand, words, by, at, self.by, self.at)

    def silent(self, silence: float, now: float) -> bool:
        """Return whether nothing was heard for too long, or a clock was far ahead when it was."""
        return abs(now - self.at) > silence

    def rival(self, silence: float, now: float) -> str:
        """Return that two ask at once; empty if one does."""
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
        """Demands the last request, as long as its controller is active."""
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
    """Return a warning if no external controller is active, else the empty string."""
    if told is None:
        return "no external controller has set a demand yet"
    if not told.silent(silence, now):
        return ""
    return f"no report from {told.by} for {units.for_people(abs(now - told.at))}"


def words(told: Told | None, silence: float, now: float) -> str:
    """Return the external controller of a pool and when it was last seen."""
    if told is None:
        return unheard(None, silence, now)
    heard = units.for_people(max(0.0, now - told.at))
    said = f"{told.by} wants {_cores(told)}, last seen {heard} ago"
    rival = told.rival(silence, now)
    return f"{said}; {rival}" if rival else said


def _cores(told: Told) -> str:
    return f"{volume(told.demand)} cores"
