"""What pools have held and what was made of it: the rest is waste, and somebody paid for it."""

from __future__ import annotations

import msgspec

from pilotage.pool.words import volume
from pilotage.store import Db

_HOUR_S = 3600.0


class Account(msgspec.Struct, frozen=True):
    """Core-seconds of a pool since it was there, as far as its jobs are remembered."""

    #: Of pilots from when they came until they left.
    held: float = 0.0
    #: Of payloads that ran there.
    used: float = 0.0
    #: Those of them that ran in vain, since their pilot was lost.
    lost: float = 0.0

    @property
    def part(self) -> float | None:
        """The part that was used for good; nothing if nothing was held."""
        return min(1.0, (self.used - self.lost) / self.held) if self.held > 0 else None

    def words(self) -> str:
        """Say it to people; empty if nothing was held."""
        if self.part is None:
            return ""
        lost = f", {_hours(self.lost)} of these in vain" if self.lost else ""
        return f"{_hours(self.used)} of {_hours(self.held)} core-hours held ({self.part:.0%}){lost}"


def _hours(seconds: float) -> str:
    hours = seconds / _HOUR_S
    return f"{hours:.2g}" if hours < 10 else volume(round(hours))


def accounts(db: Db, now: float, pool: str = "") -> dict[str, Account]:
    """Add up for one pool or all; it reads every attempt, so it is for a person who asks."""
    used = {name: sums for name, *sums in db.rows("pool_used", pool=pool, now=now)}
    held = db.rows("pool_held", pool=pool, now=now)
    return {name: Account(seconds, *used.get(name, ())) for name, seconds in held}
