"""The law without a queue: a window of orders that opens while there is no room, and closes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from . import breaker, moves
from .model import Act, Hint, Memory, Order, Sight, Verdict
from .places import learn, places, ranked, stalled

_HOUR = 3600.0


class Windowed(moves.Manners, frozen=True, kw_only=True):
    """Feedback alone: additive and multiplicative increase, quick decrease."""

    #: Part of the cores that may be free while drones still count as full, and as not full.
    tight: float = 0.06
    loose: float = 0.12
    #: Seconds without room before drones are ordered, and before some are recalled.
    patience: float = 300.0
    haste: float = 120.0
    #: Part of the cores in use by which the window grows in an hour, and by how much of itself.
    add: float = 0.2
    multiply: float = 4.0
    #: Cores that the window never exceeds by hour of latency, alone and for each that is ready.
    most: float = 700.0
    widest: float = 0.1
    #: Seconds in which the window falls to a third when there is some room.
    fall: float = 900.0
    hedge: float = 1.0
    headroom: float = 0.03
    light: float = 0.8
    fresh: float = 15.0

    def __call__(
        self, now: float, sights: Sequence[Sight], hints: Sequence[Hint], memory: Memory
    ) -> Verdict:
        """Say what shall be done now; hints are not looked at."""
        del hints
        elapsed = max(0.0, now - memory.time)
        cores = sum(one.ready * one.cores for one in sights)
        spare = sum(one.spare for one in sights)
        cares = learn(memory.pools, sights, now)
        hours = sum(care.latency for care in cares.values()) / max(1, len(cares)) / _HOUR
        most = hours * (self.most + self.widest * cores)
        state = replace(self._window(memory, elapsed, cores, spare, most), time=now, pools=cares)
        return Verdict(tuple(self._decide(now, sights, spare, state)), state)

    def _window(
        self, memory: Memory, elapsed: float, cores: int, spare: float, most: float
    ) -> Memory:
        free = spare / cores if cores else 1.0
        if free <= self.tight:
            pressed = max(0.0, memory.pressed) + elapsed
            if pressed < self.patience:
                return replace(memory, pressed=pressed)
            hours = elapsed / _HOUR
            grown = memory.window * (1 + self.multiply * hours) + self.add * cores * hours
            return replace(memory, pressed=pressed, window=min(grown, most))
        if free <= self.loose:
            kept = max(0.0, 1 - elapsed / self.fall)
            return replace(memory, pressed=0.0, window=memory.window * kept)
        return replace(memory, pressed=min(0.0, memory.pressed) - elapsed, window=0.0)

    def _decide(
        self, now: float, sights: Sequence[Sight], spare: float, memory: Memory
    ) -> list[Order]:
        cares = memory.pools
        best = ranked(sights, cares)
        book = moves.Book()
        if not any(one.ready for one in sights):
            return _sentinel(best, memory, now)
        busy = sum(one.busy for one in sights)
        minutes = memory.pressed / 60
        pending = sum(one.pending * one.cores for one in sights if breaker.trusted(cares[one.name]))
        if memory.pressed >= self.haste:
            why = f"pilots have been full for {minutes:.0f} min"
            moves.recall(book, best, max(1.0, memory.window - pending), {}, why)
        want = memory.window - pending
        if memory.pressed >= self.patience and want > 0 and not book.orders:
            full = f"pilots have been full for {minutes:.0f} min"
            why = f"{full}, so {memory.window:.0f} cores are wanted"
            any_job = Hint("any", 1, 0.0, want)
            moves.order(self, book, places(best, any_job, 1.0), any_job, why, cares, now)
        elif memory.pressed <= 0:
            why = f"there is room for more jobs, and only {memory.window:.0f} cores are wanted"
            moves.cancel(self, book, best, -want, why)
        book.orders += breaker.cancel(sights, cares, now)
        if memory.pressed <= 0:
            keep = next(one.name for one in best if one.ready)
            moves.shrink(self, book, best, spare - self.headroom * busy, cares, keep)
        return book.orders


def _sentinel(best: Sequence[Sight], memory: Memory, now: float) -> list[Order]:
    """Order one drone if there is none, since nothing else would show that there is work."""
    if any(one.pending for one in best if _comes(one, memory)):
        return []
    words = "there must be one pilot to see whether there is work"
    for one in best:
        if not one.pending and breaker.allowed(memory.pools[one.name], one, now) > 0:
            return [Order(one.name, Act.ORDER, 1, words)]
    return []


def _comes(one: Sight, memory: Memory) -> bool:
    """Say whether what is on order is likely to come."""
    care = memory.pools[one.name]
    return breaker.trusted(care) and not stalled(one, care)
