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


def dice(seed: int | None = None) -> random.Random:
    """Return a source of randomness; jitter and ids need no secrecy."""
    return random.Random(seed)  # noqa: S311 - never used for secrets
