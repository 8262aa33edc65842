"""Time and randomness as things that are handed in, so that tests own them."""

from __future__ import annotations

import random
import time
from typing import Protocol

import anyio


class Clock(Protocol):
    """Where the present comes from."""

    def now(self) -> float:
        """Return the time as seconds since 1970, UTC."""
        ...

    def steady(self) -> float:
        """Return seconds of a clock that nobody sets: patience is measured by it."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait until so many seconds have passed."""
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
        """Wait until so many seconds have passed."""
        await anyio.sleep(seconds)


class ManualClock:
    """A clock that moves when a test says so."""

    def __init__(self, start: float = 1_000_000_000.0) -> None:
        """Begin at `start`."""
        self._now = start
        self._moved = anyio.Event()

    def now(self) -> float:
        """Return the time as seconds since 1970, UTC."""
        return self._now

    def steady(self) -> float:
        """Return the same as `now`: nobody sets this clock back."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Wait until it was moved so far."""
        due = self._now + seconds
        while self._now < due:
            await self._moved.wait()

    def advance(self, seconds: float) -> None:
        """Move forward."""
        self._now += seconds
        self._moved.set()
        self._moved = anyio.Event()


def dice(seed: int | None = None) -> random.Random:
    """Return a source of randomness; jitter and ids need no secrecy."""
    return random.Random(seed)  # noqa: S311 - never used for secrets
