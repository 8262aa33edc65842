"""Back-off: how long to wait before the next try; one policy for everything that retries."""

from __future__ import annotations

import random

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """Pauses that grow with each failure in a row, up to a limit."""

    #: Seconds before the second try.
    first: float
    #: The longest pause, in seconds.
    limit: float
    factor: float = 2.0
    #: The part of a pause that is left to chance, so that many do not come back at once.
    jitter: float = 0.0
    #: Seconds without a failure after which the next pause is the first one again.
    good: float = 60.0

    def bound(self, failures: int) -> float:
        """Return the pause after `failures` in a row, before chance shortens it."""
        try:
            return min(self.limit, self.first * self.factor ** max(0, failures - 1))
        except OverflowError:
            return self.limit

    def pause(self, failures: int, dice: random.Random | None) -> float:
        """Return the pause after `failures` in a row."""
        return self.bound(failures) * (1 - self.jitter * (dice.random() if dice else 0.0))


def fixed(seconds: float) -> Backoff:
    """Return a policy whose pauses are all the same."""
    return Backoff(seconds, seconds, factor=1.0)


class Pauses:
    """The pauses of one thing that is tried again and again."""

    def __init__(self, policy: Backoff, dice: random.Random | None = None) -> None:
        """Start without failures; without `dice` there is no jitter."""
        self._policy, self._dice = policy, dice
        #: Failures in a row.
        self.failures = 0

    def next(self) -> float:
        """Count a failure and return the pause after it."""
        self.failures += 1
        return self._policy.pause(self.failures, self._dice)

    def next_after(self, lasted: float) -> float:
        """Count a failure of something that ran for `lasted` seconds; return the pause after it."""
        if lasted > self._policy.good:
            self.reset()
        return self.next()

    def reset(self) -> None:
        """Record a success."""
        self.failures = 0
