"""What the end of an attempt means: whether its task is tried again, when and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pilotage.flow.model import End, Step

#: The longest pause before a task is tried again.
LONGEST_S = 3600.0
#: A task without retries whose step says `retry` has so many.
USUAL = 3


class Tried(NamedTuple):
    """An attempt of a task that is over."""

    site: str
    state: str


class Verdict(msgspec.Struct, frozen=True):
    """What becomes of a task."""

    again: bool
    reason: str = ""
    #: Seconds until it may be sent.
    pause: float = 0.0
    #: What it costs of the task's own retries.
    cost: int = 0


def tries(step: Step) -> int:
    """Return how often a task of a step may be tried again."""
    if step.retries or step.on_failure not in ("retry", "other_site"):
        return step.retries
    return max(1, len(step.sites) - 1) if step.on_failure == "other_site" else USUAL


def decide(step: Step, how: End, *, retries: int, tried: Sequence[Tried]) -> Verdict:
    """Decide on a task whose attempt, the last of those tried, has not ended well."""
    words = how.reason or f"it was {how.state}"
    if how.state == "cancelled":
        return Verdict(again=False, reason=f"called off at the site: {words}")
    elsewhere = step.on_failure == "other_site"
    refused = how.state == "rejected"
    if refused and not (elsewhere and _left(step.sites, tried)):
        return Verdict(again=False, reason=words)
    # Whose data or whose site is lost has done nothing wrong: the first such try is free.
    free = how.state == "lost" and sum(one.state == "lost" for one in tried) == 1
    if not retries and not free:
        return Verdict(again=False, reason=words)
    fresh = elsewhere and set(_left(step.sites, tried)) - {one.site for one in tried}
    pause = 0.0 if fresh else min(LONGEST_S, step.delay * 2.0 ** min(len(tried) - 1, 40))
    return Verdict(again=True, reason=words, pause=pause, cost=0 if free else 1)


def candidates(step: Step, sites: Sequence[str], tried: Sequence[Tried]) -> tuple[str, ...]:
    """Return the sites for the next try, the best first; one that has refused it is none."""
    left = _left(sites, tried)
    if step.on_failure != "other_site":
        return left
    used = Counter(one.site for one in tried)
    return tuple(sorted(left, key=lambda site: used[site]))


def avoid(step: Step, tried: Sequence[Tried]) -> tuple[str, ...]:
    """Return sites that the next try is not to go to, where any other may be chosen."""
    elsewhere = step.on_failure == "other_site"
    return tuple(sorted({one.site for one in tried if elsewhere or one.state == "rejected"}))


def _left(sites: Sequence[str], tried: Sequence[Tried]) -> tuple[str, ...]:
    refused = {one.site for one in tried if one.state == "rejected"}
    # No list means any site; those that refused are avoided then.
    return tuple(site for site in sites if site not in refused) if sites else ("",)
