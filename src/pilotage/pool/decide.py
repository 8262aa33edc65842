"""What shall be done to pools: a controller or our law says what it wants, guards what may be."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pilotage.pool import outside
from pilotage.pool.bounds import Wanted, guard, leaving
from pilotage.pool.efficiency import Meter, give_back
from pilotage.pool.files import Aimd, Outside, Pool
from pilotage.pool.fitness import Basis
from pilotage.pool.policy import breaker
from pilotage.pool.policy.hinted import Hinted
from pilotage.pool.policy.model import Act, Care, Hint, Memory, Need, Order, Sight
from pilotage.pool.reading import Row, Seen, Step

_log = logging.getLogger("pilotage.pool")
#: What is decided is for so many intervals at most, however long nobody looked.
_LATE = 2.0
#: What utilisation is taken from in pools that give back what is not kept busy.
_BUSY = (Basis.EFFICIENCY, Basis.BOTH)


class Books:
    """All pools at one moment, and what has been ordered of their sites in it."""

    def __init__(
        self, pools: Mapping[str, Pool], rows: Mapping[str, Row], seen: Mapping[str, Seen],
        now: float,
    ) -> None:  # fmt: skip
        """Begin with nothing ordered."""
        self.pools = pools
        self.seen = seen
        self.now = now
        self._rows = rows
        self._ordered: dict[str, tuple[int, int]] = {}

    def row(self, name: str) -> Row:
        """Return what the store keeps of a pool."""
        return self._rows.get(name, Row(name))

    def elapsed(self, name: str) -> float:
        """Return the seconds since a pool was looked at, as far as they count."""
        row, pool = self.row(name), self.pools[name]
        if not row.looked:
            return pool.seconds
        return min(max(0.0, self.now - row.looked), _LATE * pool.seconds)

    def shut(self, name: str) -> bool:
        """Say whether nothing may be asked of a pool."""
        return bool(self.row(name).asked or self.seen[name].closed)

    def starved(self, name: str) -> bool:
        """Say whether the payloads of a pool do not keep their cores busy, and that matters."""
        return self.pools[name].utilisation in _BUSY and self.seen[name].meter.starved

    def takes(self, name: str) -> bool:
        """Say whether a pool could do the work of another."""
        sight = self.seen[name].sight
        room = (sight.pending + 1) * sight.cores <= self.pools[name].maximum
        return not self.shut(name) and not self.starved(name) and (room or sight.ready > 0)

    def guard(self, name: str, wanted: Wanted, care: Care) -> Step:
        """Keep what is wanted within what may be; pools at one site share what it takes."""
        pool, seen = self.pools[name], self.seen[name]
        pilots, cores = self._ordered.get(pool.site, (0, 0))
        quota = None if seen.quota is None else seen.quota - cores
        left = replace(seen, room=seen.room - pilots, quota=quota)
        step = guard(pool, self.row(name), left, wanted, care, self.now)
        ordered = pilots + step.order, cores + step.order * seen.sight.cores
        self._ordered[pool.site] = ordered
        return step


def decide(
    pools: Mapping[str, Pool], rows: Mapping[str, Row], seen: Mapping[str, Seen],
    needs: Mapping[str, Need], now: float,
) -> tuple[dict[str, Step], dict[str, Need]]:  # fmt: skip
    """Say what shall be done to each pool now, and what to remember of kinds of jobs."""
    steps: dict[str, Step] = {}
    kept: dict[str, Need] = dict(needs)
    books = Books(pools, rows, seen, now)
    lawful: dict[str, list[str]] = {}
    for name, pool in pools.items():
        row = books.row(name)
        if isinstance(pool.control, Aimd):
            lawful.setdefault(seen[name].group, []).append(name)
            continue
        try:
            steps[name] = _heard(pool, row, _alone(books, name), now)
        except Exception as error:  # noqa: BLE001 - the other pools are steered on
            steps[name] = _left(row, error)
    for names in lawful.values():
        try:
            kept |= _together(books, names, kept, steps)
        except Exception as error:  # noqa: BLE001 - as above
            steps |= {name: _left(books.row(name), error) for name in names}
    told = {hint.name for one in seen.values() for hint in one.hints}
    return steps, {name: need for name, need in kept.items() if name in told}


def _alone(books: Books, name: str) -> Step:
    """Ask the controller of one pool, and find out how many pilots that means."""
    pool, row, seen, now = books.pools[name], books.row(name), books.seen[name], books.now
    sight, controller = seen.sight, pool.controller(row.told, now)
    if controller is None:
        raise LookupError("our law decides for it, with others")
    made = controller.decide(seen.reading, books.elapsed(name), row.state)
    have = sight.ready + sight.pending
    # What cannot be had is not asked for: the way back would begin up there.
    most = min(float(pool.maximum), (have + pool.pending) * sight.cores)
    demand = min(most, max(float(pool.minimum), made.demand))
    # Our law remembers who died, also where it does not decide.
    care = Hinted()(now, [sight], (), Memory(now, {name: row.care})).memory.pools[name]
    wanted = Wanted(words=[made.words])
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


def _left(row: Row, error: Exception) -> Step:
    """Leave a pool as it is that cannot be decided for, and ask for a person."""
    words = f"left as it is, since nobody can decide: {type(error).__name__}: {error}"
    if row.reason != words:
        _log.error("pool %s is %s", row.name, words, exc_info=error)
    return Step(row.demand, words, row.state, row.care, asked=row.asked, reason=words)


def _heard(pool: Pool, row: Row, step: Step, now: float) -> Step:
    """Ask for a person where nobody steers a pool that is steered from outside."""
    if step.reason or not isinstance(pool.control, Outside):
        return step
    why = outside.unheard(row.told, pool.control.seconds, now)
    return replace(step, reason=why)


def _together(
    books: Books, names: Sequence[str], needs: dict[str, Need], steps: dict[str, Step]
) -> dict[str, Need]:
    """Ask our law for pools that are alike to jobs; the parameters are those of the first."""
    control = books.pools[names[0]].control
    law = (control if isinstance(control, Aimd) else Aimd()).law()
    elapsed = max(books.elapsed(name) for name in names)
    sights = [_lawful(books, name) for name in names]
    cares = {name: books.row(name).care for name in names}
    hints = books.seen[names[0]].hints
    needs = needs | _fade(needs, hints, elapsed / law.patience)
    memory = Memory(books.now - elapsed, cares, needs, *_pressed(books.row(names[0]).state))
    verdict = law(books.now, sights, hints, memory)
    wanted = {name: Wanted(words=[]) for name in names}
    for order in verdict.orders:
        _count(wanted[order.pool], order)
    for name in names:
        meter = _relieve(books, name, names, wanted[name])
        step = books.guard(name, wanted[name], verdict.memory.pools[name])
        state = [verdict.memory.pressed, verdict.memory.window]
        steps[name] = replace(step, state=state, meter=meter)
    return dict(verdict.memory.needs)


def _fade(needs: Mapping[str, Need], hints: Sequence[Hint], part: float) -> dict[str, Need]:
    """Believe again what waits where no pilot has room: our own queue makes nothing up for long."""
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


def _lawful(books: Books, name: str) -> Sight:
    """Show a pool to our law with what may be had of it now: the rest is looked for elsewhere."""
    pool, seen, sight = books.pools[name], books.seen[name], books.seen[name].sight
    if books.shut(name) or books.starved(name):
        return replace(sight, quota=0.0, callable=())
    more = max(0.0, min(pool.pending - sight.queued, seen.room) * sight.cores)
    more = more if seen.quota is None else min(more, seen.quota)
    have = (sight.ready + sight.pending) * sight.cores
    return replace(sight, quota=min(float(pool.maximum), have + more))


def _count(wanted: Wanted, order: Order) -> None:
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


def _relieve(books: Books, name: str, names: Sequence[str], wanted: Wanted) -> Meter:
    """Give back what payloads do not keep busy; others of the same kind take the work."""
    seen, rules = books.seen[name], books.pools[name].efficiency
    if not books.starved(name):
        return seen.meter
    sight, busy = seen.sight, seen.meter.busy
    others = [one for one in names if one != name and books.takes(one)]
    idle = len(sight.idle)
    count, meter = give_back(seen.meter, sight.ready, idle, rules, others=bool(others))
    # Where nobody else could do the work, one pilot does.
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
