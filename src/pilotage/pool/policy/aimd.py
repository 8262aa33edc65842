"""Policies that grow a pool step by step and halve what does not help (AIMD)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from pilotage.pool.policy import breaker, moves
from pilotage.pool.policy.model import Act, Hint, Memory, Need, PolicyDecision, PoolOrder, Sight
from pilotage.pool.policy.places import gain, learn, likely, places, ranked, stalled
from pilotage.pool.words import worth


def weigh(
    hints: Sequence[Hint],
    before: Mapping[str, Need],
    elapsed: float,
    *,
    patience: float,
    haste: float,
) -> dict[str, Need]:
    """Return what is needed: quick to fall, slow to rise, and nothing while there is room."""
    return {
        hint.name: _weigh(hint, before.get(hint.name, Need()), elapsed, patience, haste)
        for hint in hints
    }


def _weigh(hint: Hint, before: Need, elapsed: float, patience: float, haste: float) -> Need:
    # A pilot with room and a job that waits for it cannot both be true for long.
    phantom = hint.waiting if hint.fits else min(before.phantom, hint.waiting)
    real = hint.waiting - phantom
    return Need(
        lasting=_rise(before.lasting, real, elapsed / patience),
        recent=_rise(before.recent, real, elapsed / haste),
        phantom=phantom,
    )


def _rise(before: float, now: float, part: float) -> float:
    return now if now < before else before + (now - before) * min(1.0, part)


#: Part of a need that must have lasted for it to be served however small it is.
_SURE = 0.98


class Hinted(moves.Manners, frozen=True, kw_only=True):
    """Feedback first, with an advisory hint of the queue."""

    #: Seconds that a need must last before pilots are ordered for it, and before some are recalled.
    patience: float = 900.0
    haste: float = 300.0
    #: Part of the cores in use that may wait without an order: it keeps pilots full.
    tolerate: float = 0.2
    #: Part of a pilot that jobs of one kind must be able to use for it to be ordered for them.
    useful: float = 0.45

    def __call__(
        self, now: float, sights: Sequence[Sight], hints: Sequence[Hint], memory: Memory
    ) -> PolicyDecision:
        """Return the orders of this moment, and what to remember."""
        elapsed = max(0.0, now - memory.time)
        needs = weigh(hints, memory.needs, elapsed, patience=self.patience, haste=self.haste)
        memory = Memory(now, learn(memory.pools, sights, now), needs)
        return PolicyDecision(tuple(self._decide(now, sights, hints, memory)), memory)

    def _decide(
        self, now: float, sights: Sequence[Sight], hints: Sequence[Hint], memory: Memory
    ) -> list[PoolOrder]:
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
        """Return where orders are counted on; where nothing starts, if no other has room."""
        cares = memory.pools
        moving = [one for one in where if not stalled(one, cares[one.name])]
        room = any(moves.most(self, one, cares[one.name], now) > 0 for one in moving)
        return moving if room or any(one.pending for one in moving) else where


def _least(fits: Sequence[Sight], hint: Hint, need: Need, want: float) -> int:
    """Return 1 if a pilot should be ordered however little it would do.

    Where there is none and none is to come, somebody would wait for ever; and a small need that has
    lasted for long is not going to find company.
    """
    if need.recent > 0 and not any(one.ready or one.pending or one.callable for one in fits):
        return 1
    return 1 if want > 0 and need.lasting >= _SURE * (hint.waiting - need.phantom) else 0


_HOUR = 3600.0


class Windowed(moves.Manners, frozen=True, kw_only=True):
    """Feedback alone: additive and multiplicative increase, quick decrease."""

    #: Part of the cores that may be free while pilots still count as full, and as not full.
    tight: float = 0.06
    loose: float = 0.12
    #: Seconds without room before pilots are ordered, and before some are recalled.
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
    ) -> PolicyDecision:
        """Return the decision; hints are ignored."""
        del hints
        elapsed = max(0.0, now - memory.time)
        cores = sum(one.ready * one.cores for one in sights)
        spare = sum(one.spare for one in sights)
        cares = learn(memory.pools, sights, now)
        hours = sum(care.latency for care in cares.values()) / max(1, len(cares)) / _HOUR
        most = hours * (self.most + self.widest * cores)
        state = replace(self._window(memory, elapsed, cores, spare, most), time=now, pools=cares)
        return PolicyDecision(tuple(self._decide(now, sights, spare, state)), state)

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
    ) -> list[PoolOrder]:
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


def _sentinel(best: Sequence[Sight], memory: Memory, now: float) -> list[PoolOrder]:
    """Order one pilot if there is none, since nothing else would show that there is work."""
    if any(one.pending for one in best if _comes(one, memory)):
        return []
    words = "there must be one pilot to see whether there is work"
    for one in best:
        if not one.pending and breaker.allowed(memory.pools[one.name], one, now) > 0:
            return [PoolOrder(one.name, Act.ORDER, 1, words)]
    return []


def _comes(one: Sight, memory: Memory) -> bool:
    """Return whether what is on order is likely to come."""
    care = memory.pools[one.name]
    return breaker.trusted(care) and not stalled(one, care)
