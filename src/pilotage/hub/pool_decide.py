"""What shall be done to pools: a controller or our law says what it wants, guards what may be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from pilotage.hub.pool_model import PAUSED, Row, Seen, Step
from pilotage.pool import outside
from pilotage.pool.files import Aimd, Outside, Pool
from pilotage.pool.law import breaker
from pilotage.pool.law.hinted import Hinted
from pilotage.pool.law.model import Act, Care, Memory, Need, Order
from pilotage.pool.model import Controller
from pilotage.pool.words import volume

#: Pilots that die one after the other before a pool pauses by itself.
MOST_DEATHS = 10
#: What is decided is for so many intervals at most, however long nobody looked.
_LATE = 2.0


class Wanted(msgspec.Struct):
    """What somebody wants of a pool before guards have a say."""

    order: int = 0
    cancel: int = 0
    drain: int = 0
    release: int = 0
    words: list[str] = []


def decide(
    pools: Mapping[str, Pool], rows: Mapping[str, Row], seen: Mapping[str, Seen],
    needs: Mapping[str, Need], now: float,
) -> tuple[dict[str, Step], dict[str, Need]]:  # fmt: skip
    """Say what shall be done to each pool now, and what to remember of kinds of jobs."""
    steps: dict[str, Step] = {}
    kept: dict[str, Need] = dict(needs)
    lawful: dict[str, list[str]] = {}
    for name, pool in pools.items():
        row = rows.get(name, Row(name))
        controller = pool.controller(row.told, now)
        if controller is None:
            lawful.setdefault(seen[name].group, []).append(name)
        else:
            steps[name] = _heard(pool, row, _alone(pool, controller, row, seen[name], now), now)
    for names in lawful.values():
        kept |= _together(names, pools, rows, seen, kept, steps, now)
    told = {hint.name for one in seen.values() for hint in one.hints}
    return steps, {name: need for name, need in kept.items() if name in told}


def _elapsed(pool: Pool, row: Row, now: float) -> float:
    if not row.looked:
        return pool.seconds
    return min(max(0.0, now - row.looked), _LATE * pool.seconds)


def _alone(pool: Pool, controller: Controller, row: Row, seen: Seen, now: float) -> Step:
    """Ask the controller of one pool, and find out how many pilots that means."""
    sight, reading = seen.sight, seen.reading
    made = controller.decide(reading, _elapsed(pool, row, now), row.state)
    have = sight.ready + sight.pending
    # What cannot be had is not asked for: the way back would begin up there.
    most = min(float(pool.maximum), (have + pool.pending) * sight.cores)
    demand = min(most, max(float(pool.minimum), made.demand))
    wanted = Wanted(words=[made.words])
    change = math.ceil(demand / sight.cores - 1e-9) - have
    if change > 0:
        wanted.order = change
    else:
        wanted.cancel = min(sight.queued, -change)
        wanted.drain = -change - wanted.cancel
    # Our law remembers who died, also where it does not decide.
    care = Hinted()(now, [sight], (), Memory(now, {sight.name: row.care})).memory.pools[sight.name]
    if sight.queued and not breaker.allowed(care, sight, now) and now < care.until:
        wanted.order, wanted.cancel = 0, sight.queued
        wanted.words.append(f"the last {care.deaths} pilots died as they started")
    step = guard(pool, row, seen, wanted, care, now)
    if step.asked:
        return msgspec.structs.replace(step, state=row.state)
    # The controller goes on from what it wanted, in parts of pilots, too.
    return msgspec.structs.replace(step, demand=demand, state=made.state)


def _heard(pool: Pool, row: Row, step: Step, now: float) -> Step:
    """Ask for a person where nobody steers a pool that is steered from outside."""
    if step.reason or not isinstance(pool.control, Outside):
        return step
    why = outside.unheard(row.told, pool.control.seconds, now)
    return msgspec.structs.replace(step, reason=why)


def _together(
    names: Sequence[str], pools: Mapping[str, Pool], rows: Mapping[str, Row],
    seen: Mapping[str, Seen], needs: Mapping[str, Need], steps: dict[str, Step], now: float,
) -> dict[str, Need]:  # fmt: skip
    """Ask our law for pools that are alike to jobs; the parameters are those of the first."""
    control = pools[names[0]].control
    law = (control if isinstance(control, Aimd) else Aimd()).law()
    found = {name: rows.get(name, Row(name)) for name in names}
    elapsed = max(_elapsed(pools[name], found[name], now) for name in names)
    sights = [
        msgspec.structs.replace(
            seen[name].sight, quota=0.0 if _shut(found[name], seen[name]) else pools[name].maximum
        )
        for name in names
    ]
    cares = {name: row.care for name, row in found.items()}
    state = found[names[0]].state
    pressed = float(state) if isinstance(state, int | float) else 0.0
    memory = Memory(now - elapsed, cares, needs, pressed)
    verdict = law(now, sights, seen[names[0]].hints, memory)
    wanted = {name: Wanted(words=[]) for name in names}
    for order in verdict.orders:
        _count(wanted[order.pool], order)
    for name in names:
        care = verdict.memory.pools[name]
        step = guard(pools[name], found[name], seen[name], wanted[name], care, now)
        steps[name] = msgspec.structs.replace(step, state=verdict.memory.pressed)
    return dict(verdict.memory.needs)


def _shut(row: Row, seen: Seen) -> bool:
    return bool(row.asked or seen.closed)


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
        case _:
            # Whoever drains may have been told to leave: nobody is called back.
            return
    wanted.words.append(order.words)


# -- guards --------------------------------------------------------------------------------------


def guard(pool: Pool, row: Row, seen: Seen, wanted: Wanted, care: Care, now: float) -> Step:
    """Keep what is wanted within what may be; whatever is cut is told."""
    sight, words = seen.sight, list(wanted.words)
    asked, reason = _pause(row, seen, care)
    if asked:
        # Those that wait would die as well; if a person has paused it, nothing is changed.
        does = Wanted(cancel=0 if row.asked else sight.queued)
        words.append(reason or "paused")
        left = sight.ready + sight.pending - does.cancel
        return _step(left * sight.cores, words, care, does, asked, reason)
    does = _bounds(pool, seen, wanted, words)
    does.order, reason = _afford(pool, seen, does.order, words)
    does.order = _come(pool, seen, care, does.order, words, now)
    reason = _back_off(row, seen, care, now) or reason
    left = sight.ready + sight.pending + does.order - does.cancel - does.drain - does.release
    if not words:
        words.append(_calm(seen))
    return _step(left * sight.cores, words, care, does, "", reason)


def _step(
    demand: float, words: list[str], care: Care, does: Wanted, asked: str, reason: str
) -> Step:  # fmt: skip
    said = "; ".join(dict.fromkeys(words))
    acts = (does.order, does.cancel, does.drain, does.release)
    return Step(float(demand), said, None, care, *acts, asked, reason)


def _pause(row: Row, seen: Seen, care: Care) -> tuple[str, str]:
    """Say whether a pool is paused, and why: by a person, or because pilots only die."""
    if row.asked:
        return row.asked, row.reason
    if care.deaths < MOST_DEATHS:
        return "", ""
    how = f": {seen.death}" if seen.death else ""
    words = f"paused: the last {care.deaths} pilots died before they had done anything{how}"
    return PAUSED, f"{words} (`pilotage pool resume {seen.sight.name}` tries again)"


def _back_off(row: Row, seen: Seen, care: Care, now: float) -> str:
    """Say why nothing is asked for while pilots die; empty if they do not."""
    if breaker.allowed(care, seen.sight, now) or now >= care.until:
        return ""
    if not seen.death and row.reason:
        return row.reason
    how = f" ({seen.death})" if seen.death else ""
    minutes = math.ceil((care.until - now) / 60)
    return f"the last {care.deaths} pilots died{how}: nothing is asked for, for {minutes} min"


def _bounds(pool: Pool, seen: Seen, wanted: Wanted, words: list[str]) -> Wanted:
    """Keep a pool between its minimum and its maximum."""
    sight = seen.sight
    have, each = sight.ready + sight.pending, sight.cores
    low, top = math.ceil(pool.minimum / each), pool.maximum // each
    cancel = min(wanted.cancel, sight.queued)
    release = min(wanted.release, len(sight.idle), sight.ready)
    drain = min(wanted.drain, sight.ready - release)
    order = wanted.order
    if have + order < low:
        words.append(f"{volume(pool.minimum)} cores are kept at least")
        order = low - have
    if have > top:
        words.append(f"{have * each} cores are more than the maximum of {pool.maximum}")
        cancel = max(cancel, min(sight.queued, have - top))
        drain = max(drain, have - top - cancel - release)
    room = max(0, top - have - sight.draining)
    if order > room:
        words.append(f"the maximum is {pool.maximum} cores")
        order = room
    # What goes is what is above the minimum, those that wait first.
    spare = max(0, have + order - low)
    cancel = min(cancel, spare)
    release = min(release, spare - cancel)
    drain = min(drain, spare - cancel - release, sight.ready - release)
    return Wanted(order, cancel, max(0, drain), release)


def _afford(pool: Pool, seen: Seen, order: int, words: list[str]) -> tuple[int, str]:
    """Ask a person about what costs more than is allowed."""
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
    pool: Pool, seen: Seen, care: Care, order: int, words: list[str], now: float
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
    ):  # fmt: skip
        if order > most:
            words.append(why)
            order = max(0, most)
    return order


def _calm(seen: Seen) -> str:
    reading = seen.reading
    used = reading.supply * (reading.allocation or 0.0)
    return (
        f"nothing to do: {volume(seen.waiting)} cores' worth of jobs wait, "
        f"{volume(round(used))} of {volume(reading.supply)} cores are taken, "
        f"{volume(reading.queued + reading.booting)} are on their way"
    )
