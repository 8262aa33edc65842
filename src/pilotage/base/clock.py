"""Clock and random numbers as arguments, so that tests control them."""

from __future__ import annotations

import random
import time
from typing import Protocol

import anyio


class Clock(Protocol):
    """A source of time."""

    def now(self) -> float:
        """Return the time as seconds since 1970, UTC."""
        ...

    def steady(self) -> float:
        """Return seconds of a monotonic clock, for timeouts."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep for a number of seconds."""
        ...


class WallClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Return the time as seconds since 1970, UTC."""
        return time.time()

    def steady(self) -> float:
        """Return seconds since the machine started."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for a number of seconds."""
        await anyio.sleep(seconds)


def dice(seed: int | None = None) -> random.Random:
    """Return a source of randomness; jitter and ids need no secrecy."""
    return random.Random(seed)  # noqa: S311 - never used for secrets
