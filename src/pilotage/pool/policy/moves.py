"""Actions that policies share: order, cancel, recall, release and drain, each with its reason."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from pilotage.pool.policy import breaker
from pilotage.pool.policy.model import Act, Care, Hint, PoolOrder, Sight
from pilotage.pool.policy.places import gain


class Manners(msgspec.Struct, frozen=True, kw_only=True):
    """How boldly pilots are ordered, and how soon they are let go."""

    #: Cores on order for each core that is needed: what comes late is cancelled.
    hedge: float = 2.0
    #: Pilots on order for each that a pool has, beside the first four.
    stretch: float = 3.0
    #: Part of the cores in use that may be free before the emptiest pilots are drained.
    headroom: float = 0.05
    #: Part of a pilot that must be free for it to be drained.
    light: float = 0.75
    #: Seconds that a pilot without a job is kept, at least and for each second that another costs.
    rest: float = 300.0
    ski: float = 0.1
    #: How many times longer one is kept that has never had a job.
    fresh: float = 6.0
    #: Part of what is needed by which orders may exceed it before they are cancelled.
    slack: float = 0.5


@dataclass(eq=False)
class Book:
    """Orders as they are written down; what is ordered of a pool is looked up at once."""

    orders: list[PoolOrder] = field(default_factory=list, init=False)
    _ordered: dict[str, int] = field(default_factory=dict, init=False)

    def write(self, pool: str, act: Act, count: int, words: str) -> None:
        """Add an order."""
        self.orders.append(PoolOrder(pool, act, count, words))
        if act is Act.ORDER:
            self._ordered[pool] = self.ordered(pool) + count

    def ordered(self, pool: str) -> int:
        """Return how many pilots of a pool were ordered."""
        return self._ordered.get(pool, 0)


def order(
    manners: Manners,
    book: Book,
    where: Sequence[Sight],
    hint: Hint,
    why: str,
    cares: Mapping[str, Care],
    now: float,
    least: int = 0,
) -> float:
    """Order for what a hint says waits, in the first places with room; return what is left.

    What would fill less than half a pilot waits for company, unless `least` are ordered anyway.
    """
    want = hint.waiting
    for one in where:
        care, useful = cares[one.name], one.cores * gain(one, hint)
        count = min(
            max(least, math.ceil(want * manners.hedge / useful - 0.5)),
            most(manners, one, care, now) - book.ordered(one.name),
        )
        if count > 0:
            minutes = max(1, round(care.latency / 60))
            words = f"{why}; pilots of {one.name} fit and are reckoned to take {minutes} min"
            book.write(one.name, Act.ORDER, count, words)
            want -= count * useful / manners.hedge
            least = 0
        if want <= 0:
            return 0.0
    return want


def most(manners: Manners, one: Sight, care: Care, now: float) -> int:
    """Return how many more may be ordered: never more than what could be had or is proven."""
    # Those that end before another could start need not be counted as had.
    stay = one.ready - sum(left < care.latency for left in one.leaving)
    return min(
        (int(min(one.quota, 1e9)) // one.cores) - stay - one.pending,
        math.ceil(manners.stretch * (one.ready + 4)) - one.pending,
        breaker.allowed(care, one, now),
    )


def cancel(manners: Manners, book: Book, best: Sequence[Sight], extra: float, why: str) -> None:
    """Take back orders for cores that nothing needs, where pilots come last."""
    needed = sum(one.pending * one.cores for one in best) - extra
    extra -= manners.slack * max(0.0, needed)
    for one in reversed(best):
        count = min(one.queued, int(max(0.0, extra) / one.cores))
        extra -= count * one.cores
        if count > 0 and not book.ordered(one.name):
            words = f"{why}: {count} of {one.pending} on order at {one.name} are too many"
            book.write(one.name, Act.CANCEL, count, words)


def recall(
    book: Book, where: Sequence[Sight], want: float, called: dict[str, int], why: str
) -> float:
    """Call pilots back that drain and have room, the fullest first; return what is left."""
    for one in where:
        count = 0
        for free in one.callable[called.get(one.name, 0) :]:
            if want <= 0:
                break
            count += 1
            want -= free
        if count:
            called[one.name] = called.get(one.name, 0) + count
            words = f"{why}, and {count} of {one.name} that drain have room"
            book.write(one.name, Act.RECALL, count, words)
    return max(0.0, want)


def shrink(
    manners: Manners,
    book: Book,
    best: Sequence[Sight],
    spare: float,
    cares: Mapping[str, Care],
    keep: str = "",
) -> None:
    """Release pilots that have rested, and drain the emptiest while others have room."""
    for one in reversed(best):
        rest = manners.rest + manners.ski * cares[one.name].latency
        count = sum(wait >= rest for wait in one.idle)
        count += sum(wait >= rest * manners.fresh for wait in one.fresh)
        if one.name == keep:
            count = min(count, one.ready - 1)
        if count > 0:
            words = f"{count} of {one.name} had no job for {rest / 60:.0f} min"
            book.write(one.name, Act.RELEASE, count, words)
            spare -= count * one.cores
        spare = _drain(manners, book, one, spare)


def _drain(manners: Manners, book: Book, one: Sight, spare: float) -> float:
    count = 0
    for free in range(one.cores - 1, math.ceil(manners.light * one.cores) - 1, -1):
        some = min(one.free[free] if one.free else 0, int(max(0.0, spare) / free))
        count += some
        spare -= some * free
    if count:
        words = f"{count} of {one.name} are nearly empty, and others have room for what comes"
        book.write(one.name, Act.DRAIN, count, words)
    return spare
