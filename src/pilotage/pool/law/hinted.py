"""The law that hears what waits: orders what lasts, cancels what does not, keeps drones full."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from . import breaker, trust
from .model import Act, Care, Hint, Memory, Need, Order, Sight, Verdict


class Hinted(msgspec.Struct, frozen=True, kw_only=True):
    """Feedback first, with an advisory hint of the queue."""

    #: Seconds that a need must last before drones are ordered for it, and before some are recalled.
    patience: float = 900.0
    haste: float = 300.0
    #: Part of the cores in use that may wait without an order: it keeps drones full.
    tolerate: float = 0.1
    #: Cores on order for each core that is needed: what comes late is cancelled.
    hedge: float = 1.3
    #: Part of the cores in use that may be free before the emptiest drones are drained.
    headroom: float = 0.05
    #: Part of a drone that must be free for it to be drained.
    light: float = 0.5
    #: Seconds that a drone without a job is kept, at least and for each second that another costs.
    rest: float = 300.0
    ski: float = 0.1
    #: Part by which a provider's drones on order may exceed those that it has given.
    stretch: float = 1.0

    def __call__(
        self, now: float, sights: Sequence[Sight], hints: Sequence[Hint], memory: Memory
    ) -> Verdict:
        """Say what shall be done now."""
        elapsed = max(0.0, now - memory.time)
        cares = {one.name: learn(memory.pools.get(one.name, Care()), one, now) for one in sights}
        needs = trust.weigh(
            hints, memory.needs, elapsed, patience=self.patience, haste=self.haste
        )
        memory = Memory(now, cares, needs)
        return Verdict(tuple(self._decide(now, sights, hints, memory)), memory)

    def _decide(
        self, now: float, sights: Sequence[Sight], hints: Sequence[Hint], memory: Memory
    ) -> list[Order]:
        cares, needs = memory.pools, memory.needs
        best = sorted(sights, key=lambda one: _cost(one, cares[one.name]))
        busy = sum(one.busy for one in sights)
        asked = sum(need.lasting for need in needs.values())
        part = max(0.0, 1 - self.tolerate * busy / asked) if asked > 0 else 0.0
        coming = {one.name: one.pending * one.cores / self.hedge for one in sights}
        called = {one.name: 0 for one in sights}
        lacking: dict[str, float] = {}
        orders: list[Order] = []
        for hint in sorted(hints, key=lambda one: (-one.memory / one.cores, -one.cores)):
            need = needs[hint.name]
            places = [one for one in best if _slots(one, hint)]
            left = _recall(orders, places, hint, need.recent * part, called)
            want = min(need.lasting * part, left + need.lasting * part - need.recent * part)
            for one in places:
                some = min(max(0.0, want), coming[one.name] * _gain(one, hint))
                coming[one.name] -= some / _gain(one, hint)
                want -= some
            if want > 0 and places:
                lacking[hint.name] = want
                self._order(orders, places, hint, want, cares, now)
        self._cancel(orders, best, coming, bool(lacking))
        if not any(need.recent > 0 for need in needs.values()):
            self._shrink(orders, best, busy, cares)
        return orders

    def _order(
        self,
        orders: list[Order],
        places: Sequence[Sight],
        hint: Hint,
        want: float,
        cares: Mapping[str, Care],
        now: float,
    ) -> None:
        lasted = f"{want:.0f} cores' worth of {hint.name} jobs have waited"
        for one in places:
            ordered = sum(
                order.count for order in orders if order.pool == one.name and order.act is Act.ORDER
            )
            held = one.ready + one.draining + one.pending + ordered
            most = min(
                math.ceil(want * self.hedge / (one.cores * _gain(one, hint)) - 0.5),
                int(one.quota / one.cores) - held,
                2 + math.ceil(self.stretch * (one.ready + 2)) - one.pending - ordered,
                breaker.allowed(cares[one.name], one, now) - ordered,
            )
            if most > 0:
                wait = cares[one.name].latency / 60
                words = f"{lasted}; {one.name} fits and starts in about {wait:.0f} min"
                orders.append(Order(one.name, Act.ORDER, most, words))
                want -= most * one.cores * _gain(one, hint) / self.hedge
            if want <= 0:
                return

    def _cancel(
        self, orders: list[Order], best: Sequence[Sight], coming: Mapping[str, float], lacking: bool
    ) -> None:
        placed = {order.pool for order in orders if order.act is Act.ORDER}
        for one in reversed(best):
            extra = int(coming[one.name] * self.hedge / one.cores)
            count = min(one.queued, extra)
            if count > 0 and one.name not in placed and not lacking:
                words = f"{one.pending} on order at {one.name}, {count} more than what waits needs"
                orders.append(Order(one.name, Act.CANCEL, count, words))

    def _shrink(
        self, orders: list[Order], best: Sequence[Sight], busy: int, cares: Mapping[str, Care]
    ) -> None:
        spare = sum(one.spare for one in best) - self.headroom * busy
        for one in reversed(best):
            keep = self.rest + self.ski * cares[one.name].latency
            count = sum(wait >= keep for wait in one.idle)
            if count:
                words = f"{count} of {one.name} had no job for {keep / 60:.0f} min"
                orders.append(Order(one.name, Act.RELEASE, count, words))
                spare -= count * one.cores
            count, at = 0, one.cores - 1
            lightest = math.ceil(self.light * one.cores)
            while at >= lightest and spare >= at:
                some = min(one.free[at] if one.free else 0, int(spare / at))
                count += some
                spare -= some * at
                at -= 1
            if count:
                words = f"{count} of {one.name} are nearly empty and others have room"
                orders.append(Order(one.name, Act.DRAIN, count, words))


def learn(care: Care, sight: Sight, now: float) -> Care:
    """Remember how long orders take here, and who died."""
    latency = care.latency
    for seconds in sight.arrived:
        latency += 0.15 * (seconds - latency)
    if sight.oldest > 2 * latency:
        latency += 0.01 * (sight.oldest - latency)
    care = breaker.judge(care, sight, now, alive=bool(sight.arrived) and sight.ready > 0)
    return care if latency == care.latency else replace(care, latency=latency)


def _cost(one: Sight, care: Care) -> tuple[float, bool, float, float]:
    """Prefer what is cheap, comes soon and lives long; of equals the shape that fits most."""
    return (one.price, not one.lasting, care.latency // 600, -one.memory / one.cores)


def _slots(one: Sight, hint: Hint) -> int:
    return int(min(one.cores // hint.cores, one.memory // hint.memory))


def _gain(one: Sight, hint: Hint) -> float:
    return _slots(one, hint) * hint.cores / one.cores


def _recall(
    orders: list[Order],
    places: Sequence[Sight],
    hint: Hint,
    want: float,
    called: dict[str, int],
) -> float:
    """Call drones back that drain and have room, the fullest first."""
    for one in places:
        count = 0
        for free in one.callable[called[one.name] :]:
            if want <= 0:
                break
            count += 1
            want -= free
        if count:
            called[one.name] += count
            words = f"{hint.name} jobs wait, and {count} of {one.name} that drain have room"
            orders.append(Order(one.name, Act.RECALL, count, words))
    return max(0.0, want)
