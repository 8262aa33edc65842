"""A manual clock for tests."""

from __future__ import annotations

import anyio


class ManualClock:
    """A clock that moves when a test says so."""

    def __init__(self, start: float = 1_000_000_000.0) -> None:
        self._now = start
        self._moved = anyio.Event()

    def now(self) -> float:
        """Return the time as seconds since 1970, UTC."""
        return self._now

    def steady(self) -> float:
        """Return the same as `now`."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was moved that far."""
        due = self._now + seconds
        while self._now < due:
            await self._moved.wait()

    def advance(self, seconds: float) -> None:
        """Move forward."""
        self._now += seconds
        self._moved.set()
        self._moved = anyio.Event()
