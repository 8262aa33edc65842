"""Retries of transfers: a policy, a pure decision, and the loop that applies it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

import msgspec

from pilotage.base import errors, units
from pilotage.base.backoff import Backoff
from pilotage.base.clock import Clock
from pilotage.data.transfer.failures import ErrorClass, classify

T = TypeVar("T")

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
Told: TypeAlias = Callable[[errors.PilotageError], None]


class RetryPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The number of attempts, and the pauses between them."""

    #: Seconds before the second attempt, and by how much each wait is longer than the last.
    delay: float = 2.0
    factor: float = 2.0
    #: The longest wait, in seconds.
    longest: float = 300.0
    #: The part of a wait that is left to chance, so that many do not come back at once.
    jitter: float = 0.5
    #: Attempts in a row that may bring nothing.
    attempts: int = 8
    #: Seconds after which it is over, from the first attempt on.
    deadline: float = 86_400.0
    #: Seconds between looks at a credential that is waited for.
    glance: float = 5.0

    @property
    def backoff(self) -> Backoff:
        """The pauses between attempts."""
        return Backoff(self.delay, self.longest, self.factor, self.jitter)


class Tried(msgspec.Struct, frozen=True):
    """Retries so far."""

    began: float
    #: Attempts in a row that brought nothing.
    futile: int = 0


class Again(msgspec.Struct, frozen=True):
    """Try again at a time."""

    at: float
    tried: Tried


class Pause(msgspec.Struct, frozen=True):
    """Wait for another credential, until a time at most."""

    until: float
    tried: Tried


class GiveUp(msgspec.Struct, frozen=True):
    """Stop retrying."""

    why: str


Next: TypeAlias = Again | Pause | GiveUp


def decide(
    patience: RetryPolicy, tried: Tried, kind: ErrorClass, *, now: float, dice: random.Random,
    progress: bool = False,
) -> Next:  # fmt: skip
    """Return what follows a failure; `progress` means that some bytes have arrived for good."""
    end = tried.began + patience.deadline
    if kind is ErrorClass.PERMANENT:
        return GiveUp("a retry cannot succeed")
    if now >= end:
        return GiveUp(f"the deadline of {units.for_people(patience.deadline)} has passed")
    futile = 0 if progress else tried.futile + 1
    after = Tried(tried.began, futile)
    if kind is ErrorClass.CREDENTIAL:
        # Asking with the same credential over and over gets an account locked.
        return Pause(end, Tried(tried.began, tried.futile))
    if futile >= patience.attempts:
        return GiveUp(f"{futile} attempts in a row made no progress")
    at = now + patience.backoff.pause(futile, dice)
    if at >= end:
        return GiveUp(f"the deadline of {units.for_people(patience.deadline)} is too near")
    return Again(at, after)


class AttemptProgress(msgspec.Struct):
    """Progress of an attempt, counted by the transfer."""

    #: Bytes and files that have arrived for good.
    moved: int = 0


async def persist(
    act: Callable[[AttemptProgress], Awaitable[T]], patience: RetryPolicy, *, clock: Clock,
    dice: random.Random, sleep: Sleep = asyncio.sleep,
    credential: Callable[[], object] = lambda: None, told: Told = lambda _: None,
) -> T:  # fmt: skip
    """Retry until success, or until the policy gives up.

    `told` hears of each failure after which it is tried again.
    """
    tried = Tried(clock.now())
    while True:
        steps, seen = AttemptProgress(), credential()
        try:
            return await act(steps)
        except errors.PilotageError as error:
            kind = classify(error)
            after = decide(
                patience, tried, kind, now=clock.now(), dice=dice, progress=steps.moved > 0
            )
            if not isinstance(after, GiveUp):
                told(error)
            match after:
                case GiveUp():
                    if kind is not ErrorClass.PERMANENT:
                        error.add_note(after.why)
                    raise
                case Again():
                    await sleep(max(0.0, after.at - clock.now()))
                case Pause():
                    while credential() == seen:
                        if clock.now() >= after.until:
                            error.add_note("no other credential has come")
                            raise
                        await sleep(patience.glance)
            tried = after.tried
