"""Time and randomness as things that are handed in, so that tests own them."""

from __future__ import annotations

import random
import time
from typing import Protocol


class Clock(Protocol):
    """Where the present comes from."""

    def now(self) -> float:
        """Return the time as seconds since 1970, UTC."""
        ...


class WallClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Return the time as seconds since 1970, UTC."""
        return time.time()


class ManualClock:
    """A clock that moves when a test says so."""

    def __init__(self, start: float = 1_000_000_000.0) -> None:
        """Begin at `start`."""
        self._now = start

    def now(self) -> float:
        """Return the time as seconds since 1970, UTC."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move forward."""
        self._now += seconds


def dice(seed: int | None = None) -> random.Random:
    """Return a source of randomness; jitter and ids need no secrecy."""
    return random.Random(seed)  # noqa: S311 - never used for secrets
