"""Decisions for pools: a controller or the AIMD policy proposes, guards limit the proposal."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from pilotage.pool import outside
from pilotage.pool.efficiency import Meter, give_back
from pilotage.pool.files import Aimd, Outside, Pool
from pilotage.pool.fitness import Basis
from pilotage.pool.policy import breaker
from pilotage.pool.policy.aimd import Hinted
from pilotage.pool.policy.model import Act, Care, Hint, Memory, Need, PoolOrder, Sight
from pilotage.pool.state import PAUSED, PoolObservation, PoolRow, PoolStep
from pilotage.pool.words import volume, worth

#: Pilots that die one after the other before a pool pauses by itself.
MOST_DEATHS = 10
#: The part of a pilot's time in which its end is near.
_LATE = 0.25


class WantedChanges(msgspec.Struct):
    """Changes that a controller wants, before limits apply."""

    order: int = 0
    cancel: int = 0
    drain: int = 0
    release: int = 0
    recall: int = 0
    words: list[str] = []


def guard(
    pool: Pool, row: PoolRow, seen: PoolObservation, wanted: WantedChanges, care: Care, now: float
) -> PoolStep:
    """Limit a proposal to what is allowed, and explain each cut."""
    sight, words = seen.sight, list(wanted.words)
    asked, reason = _pause(row, seen, care)
    if asked:
        # Those that wait would die as well; if a person has paused it, nothing is changed.
        does = WantedChanges(cancel=0 if row.asked else sight.queued)
        words.append(reason or "paused")
        left = sight.ready + sight.pending - does.cancel
        return _step(left * sight.cores, words, care, does, asked, reason)
    does = _bounds(pool, seen, wanted, care, words)
    does.order, reason = _afford(pool, seen, does.order, words)
    does.order = _come(pool, seen, care, does.order, words, now)
    reason = _back_off(row, seen, care, now) or reason
    left = sight.ready + sight.pending + does.order + does.recall
    left -= does.cancel + does.drain + does.release
    if not words:
        words.append(_calm(pool, seen))
    return _step(left * sight.cores, words, care, does, "", reason)


def _step(
    demand: float, words: list[str], care: Care, does: WantedChanges, asked: str, reason: str
) -> PoolStep:  # fmt: skip
    said = "; ".join(dict.fromkeys(words))
    acts = (does.order, does.cancel, does.drain, does.release)
    return PoolStep(float(demand), said, None, care, *acts, asked, reason, does.recall)


def _pause(row: PoolRow, seen: PoolObservation, care: Care) -> tuple[str, str]:
    """Return whether a pool is paused, and why: by a person, or because pilots only die."""
    if row.asked:
        return row.asked, row.reason
    if care.deaths < MOST_DEATHS:
        return "", ""
    how = f": {seen.death}" if seen.death else ""
    words = f"paused: the last {care.deaths} pilots died before they had done anything{how}"
    return PAUSED, f"{words} (`pilotage pool resume {seen.sight.name}` tries again)"


def _back_off(row: PoolRow, seen: PoolObservation, care: Care, now: float) -> str:
    """Return why nothing is asked for while pilots die; empty if they do not."""
    if breaker.allowed(care, seen.sight, now) or now >= care.until:
        return ""
    if not seen.death and row.reason:
        return row.reason
    how = f" ({seen.death})" if seen.death else ""
    minutes = math.ceil((care.until - now) / 60)
    return f"the last {care.deaths} pilots died{how}: nothing is asked for, for {minutes} min"


def _bounds(
    pool: Pool, seen: PoolObservation, wanted: WantedChanges, care: Care, words: list[str]
) -> WantedChanges:
    """Keep a pool between its minimum and its maximum."""
    sight = seen.sight
    have, each = sight.ready + sight.pending, sight.cores
    low, top = math.ceil(pool.minimum / each), pool.maximum // each
    cancel = min(wanted.cancel, sight.queued)
    release = min(wanted.release, len(sight.idle), sight.ready)
    drain = min(wanted.drain, sight.ready - release)
    recall = 0 if seen.closed else min(wanted.recall, len(sight.callable), max(0, top - have))
    order = wanted.order
    # Those that end before another could come are replaced in time.
    stay = have + recall - (leaving(sight, care, pool) if low else 0)
    if stay + order < low:
        words.append(f"{volume(pool.minimum)} cores are kept at least")
        order = low - stay
    if have > top:
        words.append(f"{have * each} cores are more than the maximum of {pool.maximum}")
        cancel = max(cancel, min(sight.queued, have - top))
        drain = max(drain, have - top - cancel - release)
    room = max(0, top - have - sight.draining)
    if order > room:
        words.append(f"the maximum is {pool.maximum} cores")
        order = room
    # What goes is what is above the minimum, those that wait first; those that end soon keep none.
    spare = max(0, stay + order - low)
    cancel = min(cancel, spare)
    release = min(release, spare - cancel)
    drain = min(drain, spare - cancel - release, sight.ready - release)
    return WantedChanges(order, cancel, max(0, drain), release, recall)


def leaving(sight: Sight, care: Care, pool: Pool) -> int:
    """Count the pilots that end before another could come; young ones never do."""
    time = pool.pilot.seconds
    soon = care.latency if time is None else min(care.latency, _LATE * time)
    return sum(left < soon for left in sight.leaving)


def _afford(pool: Pool, seen: PoolObservation, order: int, words: list[str]) -> tuple[int, str]:
    """Limit orders to the cost that needs no confirmation."""
    sight = seen.sight
    held = sight.ready + sight.pending + sight.draining
    if not pool.ask_above or order <= 0 or (held + order) * sight.cores <= pool.ask_above:
        return order, ""
    name = sight.name
    reason = (
        f"wants {(held + order) * sight.cores} cores, more than the {pool.ask_above} that need no "
        f"leave: `pilotage pool set {name} --allow`"
    )
    words.append(reason)
    return max(0, pool.ask_above // sight.cores - held), reason


def _come(
    pool: Pool, seen: PoolObservation, care: Care, order: int, words: list[str], now: float
) -> int:  # fmt: skip
    """Order no more than the site would take now."""
    if order <= 0:
        return 0
    sight = seen.sight
    if seen.closed:
        words.append(seen.closed)
        return 0
    for most, why in (
        (breaker.allowed(care, sight, now),
         f"the last {care.deaths} pilots died, so it waits, and tries one at a time"),
        (pool.pending - sight.queued, f"{sight.queued} wait at {pool.site} already"),
        (seen.room, f"{pool.site} has as many as it may"),
        (_fit(seen), f"the quota of {pool.site} leaves {volume(seen.quota or 0.0)} cores"),
    ):  # fmt: skip
        if order > most:
            words.append(why)
            order = max(0, most)
    return order


def _fit(seen: PoolObservation) -> int:
    """Return how many more pilots the quota of the site leaves room for."""
    return 1 << 30 if seen.quota is None else int(seen.quota // seen.sight.cores)


def _calm(pool: Pool, seen: PoolObservation) -> str:
    reading = seen.reading
    used = reading.supply * (reading.allocation or 0.0)
    have = reading.supply + reading.queued + reading.booting + reading.draining
    full = have + seen.sight.cores > pool.maximum and seen.waiting > 0
    why = f"the maximum of {pool.maximum} cores is reached" if full else "nothing to do"
    if seen.closed:
        why = seen.closed
    return (
        f"{why}: {worth(seen.waiting)} of jobs wait, "
        f"{volume(round(used))} of {volume(reading.supply)} cores are taken, "
        f"{volume(reading.queued + reading.booting)} are on their way"
    )


_log = logging.getLogger("pilotage.pool")
#: Elapsed time counts for at most this many intervals, however long the gap.
_LATE_INTERVALS = 2.0
#: What utilisation is taken from in pools that give back what is not kept busy.
_BUSY = (Basis.EFFICIENCY, Basis.BOTH)


@dataclass(eq=False)
class PoolsInTurn:
    """All pools at one moment, and what has been ordered at their sites so far."""

    pools: Mapping[str, Pool]
    _rows: Mapping[str, PoolRow]
    seen: Mapping[str, PoolObservation]
    now: float
    _ordered: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)

    def row(self, name: str) -> PoolRow:
        """Return what the store keeps of a pool."""
        return self._rows.get(name, PoolRow(name))

    def elapsed(self, name: str) -> float:
        """Return the seconds since a pool was looked at, as far as they count."""
        row, pool = self.row(name), self.pools[name]
        if not row.looked:
            return pool.seconds
        return min(max(0.0, self.now - row.looked), _LATE_INTERVALS * pool.seconds)

    def shut(self, name: str) -> bool:
        """Return whether a pool may order nothing."""
        return bool(self.row(name).asked or self.seen[name].closed)

    def starved(self, name: str) -> bool:
        """Return whether the payloads of a pool leave their cores idle where that is limited."""
        return self.pools[name].utilisation in _BUSY and self.seen[name].meter.starved

    def takes(self, name: str) -> bool:
        """Return whether a pool could do the work of another."""
        sight = self.seen[name].sight
        room = (sight.pending + 1) * sight.cores <= self.pools[name].maximum
        return not self.shut(name) and not self.starved(name) and (room or sight.ready > 0)

    def guard(self, name: str, wanted: WantedChanges, care: Care) -> PoolStep:
        """Limit a proposal to what is allowed; pools at one site share its limits."""
        pool, seen = self.pools[name], self.seen[name]
        pilots, cores = self._ordered.get(pool.site, (0, 0))
        quota = None if seen.quota is None else seen.quota - cores
        left = replace(seen, room=seen.room - pilots, quota=quota)
        step = guard(pool, self.row(name), left, wanted, care, self.now)
        ordered = pilots + step.order, cores + step.order * seen.sight.cores
        self._ordered[pool.site] = ordered
        return step


def decide(
    pools: Mapping[str, Pool], rows: Mapping[str, PoolRow], seen: Mapping[str, PoolObservation],
    needs: Mapping[str, Need], now: float,
) -> tuple[dict[str, PoolStep], dict[str, Need]]:  # fmt: skip
    """Return the step of each pool, and what to remember of kinds of jobs."""
    steps: dict[str, PoolStep] = {}
    kept: dict[str, Need] = dict(needs)
    books = PoolsInTurn(pools, rows, seen, now)
    grouped: dict[str, list[str]] = {}
    for name, pool in pools.items():
        row = books.row(name)
        if isinstance(pool.control, Aimd):
            grouped.setdefault(seen[name].group, []).append(name)
            continue
        try:
            steps[name] = _heard(pool, row, _alone(books, name), now)
        except Exception as error:  # noqa: BLE001 - the other pools are steered on
            steps[name] = _left(row, error)
    for names in grouped.values():
        try:
            kept |= _together(books, names, kept, steps)
        except Exception as error:  # noqa: BLE001 - as above
            steps |= {name: _left(books.row(name), error) for name in names}
    told = {hint.name for one in seen.values() for hint in one.hints}
    return steps, {name: need for name, need in kept.items() if name in told}


def _alone(books: PoolsInTurn, name: str) -> PoolStep:
    """Ask the controller of one pool, and convert its demand to pilots."""
    pool, row, seen, now = books.pools[name], books.row(name), books.seen[name], books.now
    sight, controller = seen.sight, pool.controller(row.told, now)
    if controller is None:
        raise LookupError("the AIMD policy decides for it, with others")
    made = controller.decide(seen.reading, books.elapsed(name), row.state)
    have = sight.ready + sight.pending
    # What cannot be had is not asked for: the way back would begin up there.
    most = min(float(pool.maximum), (have + pool.pending) * sight.cores)
    demand = min(most, max(float(pool.minimum), made.demand))
    # The AIMD policy remembers who died, also where it does not decide.
    care = Hinted()(now, [sight], (), Memory(now, {name: row.care})).memory.pools[name]
    wanted = WantedChanges(words=[made.words])
    pilots = math.ceil(demand / sight.cores - 1e-9)
    # Those that are there for the ones that end soon are not too many.
    change = pilots - have + (leaving(sight, care, pool) if pilots else 0)
    if change >= 0:
        wanted.recall = min(change, len(sight.callable))
        wanted.order = change - wanted.recall
    else:
        wanted.cancel = min(sight.queued, -change)
        wanted.drain = -change - wanted.cancel
    if sight.queued and not breaker.allowed(care, sight, now) and now < care.until:
        wanted.order, wanted.cancel = 0, sight.queued
        wanted.words.append(f"the last {care.deaths} pilots died as they started")
    step = replace(books.guard(name, wanted, care), meter=seen.meter)
    if step.asked:
        return replace(step, state=row.state)
    # The controller goes on from what it wanted, in parts of pilots, too.
    return replace(step, demand=demand, state=made.state)


def _left(row: PoolRow, error: Exception) -> PoolStep:
    """Leave a pool unchanged whose controller failed, and raise an alarm."""
    words = f"left unchanged, since its controller failed: {type(error).__name__}: {error}"
    if row.reason != words:
        _log.error("pool %s is %s", row.name, words, exc_info=error)
    return PoolStep(row.demand, words, row.state, row.care, asked=row.asked, reason=words)


def _heard(pool: Pool, row: PoolRow, step: PoolStep, now: float) -> PoolStep:
    """Raise an alarm if a pool with an external controller has none active."""
    if step.reason or not isinstance(pool.control, Outside):
        return step
    why = outside.unheard(row.told, pool.control.seconds, now)
    return replace(step, reason=why)


def _together(
    books: PoolsInTurn, names: Sequence[str], needs: dict[str, Need], steps: dict[str, PoolStep]
) -> dict[str, Need]:
    """Ask the AIMD policy for a group of pools; the first pool gives its parameters."""
    control = books.pools[names[0]].control
    policy = (control if isinstance(control, Aimd) else Aimd()).policy()
    elapsed = max(books.elapsed(name) for name in names)
    sights = [_available(books, name) for name in names]
    cares = {name: books.row(name).care for name in names}
    hints = books.seen[names[0]].hints
    needs = needs | _fade(needs, hints, elapsed / policy.patience)
    memory = Memory(books.now - elapsed, cares, needs, *_pressed(books.row(names[0]).state))
    verdict = policy(books.now, sights, hints, memory)
    wanted = {name: WantedChanges(words=[]) for name in names}
    for order in verdict.orders:
        _count(wanted[order.pool], order)
    for name in names:
        meter = _relieve(books, name, names, wanted[name])
        step = books.guard(name, wanted[name], verdict.memory.pools[name])
        state = [verdict.memory.pressed, verdict.memory.window]
        steps[name] = replace(step, state=state, meter=meter)
    return dict(verdict.memory.needs)


def _fade(needs: Mapping[str, Need], hints: Sequence[Hint], part: float) -> dict[str, Need]:
    """Reduce the distrust in waiting jobs for which no pilot has room."""
    return {
        hint.name: replace(need, phantom=need.phantom * max(0.0, 1.0 - part))
        for hint in hints
        if not hint.fits and (need := needs.get(hint.name)) is not None
    }


def _pressed(state: Any) -> tuple[float, float]:  # noqa: ANN401 - whatever decided before
    """Read for how long there was no room, and how many cores may be on order because of it."""
    match state:
        case [int() | float() as pressed, int() | float() as window]:
            return float(pressed), float(window)
        case _:
            return 0.0, 0.0


def _available(books: PoolsInTurn, name: str) -> Sight:
    """Return what the AIMD policy sees of a pool, limited to what it can get there now."""
    pool, seen, sight = books.pools[name], books.seen[name], books.seen[name].sight
    if books.shut(name) or books.starved(name):
        return replace(sight, quota=0.0, callable=())
    more = max(0.0, min(pool.pending - sight.queued, seen.room) * sight.cores)
    more = more if seen.quota is None else min(more, seen.quota)
    have = (sight.ready + sight.pending) * sight.cores
    return replace(sight, quota=min(float(pool.maximum), have + more))


def _count(wanted: WantedChanges, order: PoolOrder) -> None:
    match order.act:
        case Act.ORDER:
            wanted.order += order.count
        case Act.CANCEL:
            wanted.cancel = max(wanted.cancel, order.count)
        case Act.DRAIN:
            wanted.drain += order.count
        case Act.RELEASE:
            wanted.release += order.count
        case Act.RECALL:
            wanted.recall += order.count
    wanted.words.append(order.words)


def _relieve(books: PoolsInTurn, name: str, names: Sequence[str], wanted: WantedChanges) -> Meter:
    """Release pilots whose payloads leave cores idle; similar pools take the work."""
    seen, rules = books.seen[name], books.pools[name].efficiency
    if not books.starved(name):
        return seen.meter
    sight, busy = seen.sight, seen.meter.busy
    others = [one for one in names if one != name and books.takes(one)]
    idle = len(sight.idle)
    count, meter = give_back(seen.meter, sight.ready, idle, rules, others=bool(others))
    # Where no other pool could do the work, one pilot stays.
    alone = not others and not sight.ready
    wanted.order = 1 if alone and not sight.pending else 0
    wanted.cancel = max(0, sight.queued - 1) if alone else sight.queued
    wanted.release = max(wanted.release, min(count, idle))
    wanted.drain = max(wanted.drain, count - wanted.release)
    part = "little" if busy is None else f"{busy:.0%}"
    words = f"payloads starve: they keep {part} of their cores busy, so nothing more is ordered"
    words += f" and {count} of {sight.ready} are let go" if count else ""
    wanted.words.append(words + (f"; the work goes to {', '.join(others)}" if others else ""))
    return meter
