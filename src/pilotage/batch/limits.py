"""Limits of commands to a site: concurrency, rate, and a circuit breaker after failures."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator

from pilotage.base import errors, units
from pilotage.base.clock import Clock, WallClock, dice


class RateLimit:
    """Limits calls to a rate; one second's worth may come at once."""

    def __init__(self, rate: float) -> None:
        """Take turns in a second."""
        self._rate = rate
        self._most = max(1.0, rate)
        self._level = self._most
        self._at: float | None = None

    def take(self, now: float) -> float:
        """Take the next turn; return how long to wait for it."""
        passed = 0.0 if self._at is None else max(0.0, now - self._at)
        self._at = now
        self._level = min(self._most, self._level + passed * self._rate) - 1.0
        return max(0.0, -self._level / self._rate)


class CircuitBreaker:
    """Blocks calls after failures in a row, except for a trial now and then."""

    def __init__(
        self,
        chance: random.Random,
        *,
        most: int = 3,
        first: float = 5.0,
        longest: float = 300.0,
    ) -> None:
        """Take the number of failures that open it, the first pause and the longest."""
        self._chance = chance
        self._most, self._first, self._longest = most, first, longest
        #: Failures in a row.
        self.failures = 0
        #: When the first of them was.
        self.since: float | None = None
        self._again = 0.0
        #: Whether one is on its way to find out.
        self.trial = False
        self._words = ""

    def may(self, now: float) -> bool:
        """Return whether something may pass; if it is a trial, it is the only one."""
        if self.failures < self._most:
            return True
        if self.trial or now < self._again:
            return False
        self.trial = True
        return True

    def worked(self) -> None:
        """Note that the site has answered."""
        self.failures, self.since, self.trial, self._words = 0, None, False, ""

    def failed(self, now: float, words: str = "") -> None:
        """Note that the site has failed to answer."""
        self.failures += 1
        self.since = now if self.since is None else self.since
        self.trial, self._words = False, words
        if (over := self.failures - self._most) >= 0:
            pause = min(self._longest, self._first * 2.0 ** min(over, 20))
            # Sites share login nodes, and hubs their habits: jitter keeps them out of step.
            self._again = now + pause * self._chance.uniform(0.75, 1.25)

    def undecided(self) -> None:
        """Note that a trial had no result; another may follow at once."""
        self.trial = False

    def says(self, now: float) -> str:
        """Return why commands are blocked; empty if they are not."""
        if self.failures < self._most or self.since is None:
            return ""
        since = time.strftime("%H:%M", time.localtime(self.since))
        left = self._again - now
        again = f"next try in {units.for_people(left)}" if left > 0 else "trying again now"
        why = f" ({self._words})" if self._words else ""
        return f"has not answered since {since}{why}; {again}"


class CommandLimits:
    """Limits the commands to one site."""

    def __init__(
        self,
        name: str,
        *,
        at_once: int = 4,
        per_second: float = 20.0,
        clock: Clock | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """Name the site for what is said."""
        self._name = name
        self._clock = clock or WallClock()
        self._bucket = RateLimit(per_second)
        self._places = asyncio.Semaphore(at_once)
        self.breaker = CircuitBreaker(chance or dice())

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn; `Unavailable` means that it is better not to try now.

        Say `worked` or `failed` before it ends; if neither is known, nothing is concluded.
        """
        async with self._places:
            if wait := self._bucket.take(self._clock.now()):
                await asyncio.sleep(wait)
            before = self.breaker.trial
            if not self.breaker.may(self._clock.now()):
                raise errors.Unavailable(f"{self._name} {self.says()}")
            trial = self.breaker.trial and not before
            try:
                yield
            finally:
                if trial:
                    self.breaker.undecided()

    def worked(self) -> None:
        """Note that the site has answered."""
        self.breaker.worked()

    def failed(self, words: str = "") -> None:
        """Note that the site has failed to answer."""
        self.breaker.failed(self._clock.now(), words)

    def says(self) -> str:
        """Return why commands are blocked; empty if they are not."""
        return self.breaker.says(self._clock.now())
