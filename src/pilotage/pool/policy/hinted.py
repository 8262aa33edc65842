"""The law that hears what waits: orders what lasts, cancels what does not, keeps drones full."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pilotage.pool.words import worth

from . import breaker, moves, trust
from .model import Hint, Memory, Need, Order, Sight, Verdict
from .places import gain, learn, likely, places, ranked, stalled

#: Part of a need that must have lasted for it to be served however small it is.
_SURE = 0.98


class Hinted(moves.Manners, frozen=True, kw_only=True):
    """Feedback first, with an advisory hint of the queue."""

    #: Seconds that a need must last before drones are ordered for it, and before some are recalled.
    patience: float = 900.0
    haste: float = 300.0
    #: Part of the cores in use that may wait without an order: it keeps drones full.
    tolerate: float = 0.2
    #: Part of a drone that jobs of one kind must be able to use for it to be ordered for them.
    useful: float = 0.45

    def __call__(
        self, now: float, sights: Sequence[Sight], hints: Sequence[Hint], memory: Memory
    ) -> Verdict:
        """Say what shall be done now."""
        elapsed = max(0.0, now - memory.time)
        needs = trust.weigh(hints, memory.needs, elapsed, patience=self.patience, haste=self.haste)
        memory = Memory(now, learn(memory.pools, sights, now), needs)
        return Verdict(tuple(self._decide(now, sights, hints, memory)), memory)

    def _decide(
        self, now: float, sights: Sequence[Sight], hints: Sequence[Hint], memory: Memory
    ) -> list[Order]:
        cares, needs = memory.pools, memory.needs
        best = ranked(sights, cares)
        busy = sum(one.busy for one in sights)
        asked = sum(need.lasting for need in needs.values())
        part = max(0.0, 1 - self.tolerate * busy / asked) if asked > 0 else 0.0
        coming = {
            one.name: one.pending * one.cores / self.hedge * likely(one, cares[one.name])
            for one in sights
        }
        called: dict[str, int] = {}
        book = moves.Book()
        lacking = False
        # What fits in few places is placed first.
        for hint in sorted(hints, key=lambda one: (-one.memory / one.cores, -one.cores)):
            need = needs[hint.name]
            if need.lasting <= 0 and need.recent <= 0:
                continue
            where = places(best, hint, self.useful)
            why = f"{worth(need.recent)} of {hint.name} jobs wait"
            fits = [one for one in best if gain(one, hint) > 0]
            left = moves.recall(book, fits, need.recent * part, called, why)
            # What is tolerated is no reason to order, and none to cancel what is on order.
            covered = 0.0
            for one in self._counted(where, memory, now):
                some = min(need.lasting - covered, coming[one.name] * gain(one, hint))
                coming[one.name] -= some / gain(one, hint)
                covered += some
            want = part * need.lasting - (part * need.recent - left) - covered
            least = _least(fits, hint, need, want)
            if want > 0 or least:
                lacking = True
                why = f"{worth(hint.waiting)} of {hint.name} jobs have waited for a while"
                if least:
                    why = f"{worth(hint.waiting)} of {hint.name} jobs wait and no pilot comes"
                asked_for = replace(hint, waiting=max(0.0, want))
                moves.order(self, book, where, asked_for, why, cares, now, least)
        if not lacking:
            extra = self.hedge * sum(coming.values())
            moves.cancel(self, book, best, extra, "less waits than is on order")
        book.orders += breaker.cancel(sights, cares, now)
        wanted = [hint for hint in hints if needs[hint.name].recent > 0]
        calm = [one for one in best if not any(gain(one, hint) for hint in wanted)]
        spare = sum(one.spare for one in calm) - self.headroom * busy
        moves.shrink(self, book, calm, spare, cares)
        return book.orders

    def _counted(self, where: Sequence[Sight], memory: Memory, now: float) -> Sequence[Sight]:
        """Return where orders are counted on; where nothing starts, if nobody else has room."""
        cares = memory.pools
        moving = [one for one in where if not stalled(one, cares[one.name])]
        room = any(moves.most(self, one, cares[one.name], now) > 0 for one in moving)
        return moving if room or any(one.pending for one in moving) else where


def _least(fits: Sequence[Sight], hint: Hint, need: Need, want: float) -> int:
    """Return 1 if a drone shall be ordered however little it would have to do.

    Where there is none and none is to come, somebody would wait for ever; and a small need that has
    lasted for long is not going to find company.
    """
    if need.recent > 0 and not any(one.ready or one.pending or one.callable for one in fits):
        return 1
    return 1 if want > 0 and need.lasting >= _SURE * (hint.waiting - need.phantom) else 0
