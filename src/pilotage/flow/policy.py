"""Retry policy of tasks: whether one is retried after an attempt, when and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pilotage.flow.model import AttemptEnd, Step

#: The longest pause before a retry.
LONGEST_S = 3600.0
#: The retries of a task whose step says `retry` without a number.
USUAL = 3


class PastAttempt(NamedTuple):
    """An attempt of a task that is over."""

    site: str
    state: str


class RetryDecision(msgspec.Struct, frozen=True):
    """Whether a task is retried."""

    again: bool
    reason: str = ""
    #: Seconds until it may be sent.
    pause: float = 0.0
    #: Retries of the task that this one costs.
    cost: int = 0


def tries(step: Step) -> int:
    """Return how often a task of a step may be retried."""
    if step.retries or step.on_failure not in ("retry", "other_site"):
        return step.retries
    return max(1, len(step.sites) - 1) if step.on_failure == "other_site" else USUAL


def decide(
    step: Step, how: AttemptEnd, *, retries: int, tried: Sequence[PastAttempt]
) -> RetryDecision:
    """Decide on a task whose last attempt has not succeeded."""
    words = how.reason or f"it was {how.state}"
    if how.state == "cancelled":
        return RetryDecision(again=False, reason=f"cancelled at the site: {words}")
    elsewhere = step.on_failure == "other_site"
    refused = how.state == "rejected"
    if refused and not (elsewhere and _left(step.sites, tried)):
        return RetryDecision(again=False, reason=words)
    # The loss of data or of a site is not the task's fault: the first such retry is free.
    free = how.state == "lost" and sum(one.state == "lost" for one in tried) == 1
    if not retries and not free:
        return RetryDecision(again=False, reason=words)
    fresh = elsewhere and set(_left(step.sites, tried)) - {one.site for one in tried}
    pause = 0.0 if fresh else min(LONGEST_S, step.delay * 2.0 ** min(len(tried) - 1, 40))
    return RetryDecision(again=True, reason=words, pause=pause, cost=0 if free else 1)


def candidates(step: Step, sites: Sequence[str], tried: Sequence[PastAttempt]) -> tuple[str, ...]:
    """Return the sites for the next attempt, the best first, without those that refused it."""
    left = _left(sites, tried)
    if step.on_failure != "other_site":
        return left
    used = Counter(one.site for one in tried)
    return tuple(sorted(left, key=lambda site: used[site]))


def avoid(step: Step, tried: Sequence[PastAttempt]) -> tuple[str, ...]:
    """Return sites that the next attempt avoids, where any other may be chosen."""
    elsewhere = step.on_failure == "other_site"
    return tuple(sorted({one.site for one in tried if elsewhere or one.state == "rejected"}))


def _left(sites: Sequence[str], tried: Sequence[PastAttempt]) -> tuple[str, ...]:
    refused = {one.site for one in tried if one.state == "rejected"}
    # No list means any site; those that refused are avoided then.
    return tuple(site for site in sites if site not in refused) if sites else ("",)
