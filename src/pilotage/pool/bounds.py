"""What may be done to pools: within bounds, what a person allows, and what the site takes."""

from __future__ import annotations

import math

import msgspec

from pilotage.pool.files import Pool
from pilotage.pool.policy import breaker
from pilotage.pool.policy.model import Care, Sight
from pilotage.pool.reading import PAUSED, Row, Seen, Step
from pilotage.pool.words import volume, worth

#: Pilots that die one after the other before a pool pauses by itself.
MOST_DEATHS = 10
#: The part of a pilot's time in which its end is near.
_LATE = 0.25


class Wanted(msgspec.Struct):
    """What somebody wants of a pool before guards have a say."""

    order: int = 0
    cancel: int = 0
    drain: int = 0
    release: int = 0
    recall: int = 0
    words: list[str] = []


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
    demand: float, words: list[str], care: Care, does: Wanted, asked: str, reason: str
) -> Step:  # fmt: skip
    said = "; ".join(dict.fromkeys(words))
    acts = (does.order, does.cancel, does.drain, does.release)
    return Step(float(demand), said, None, care, *acts, asked, reason, does.recall)


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


def _bounds(pool: Pool, seen: Seen, wanted: Wanted, care: Care, words: list[str]) -> Wanted:
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
    return Wanted(order, cancel, max(0, drain), release, recall)


def leaving(sight: Sight, care: Care, pool: Pool) -> int:
    """Count the pilots that end before another could come; young ones never do."""
    time = pool.pilot.wish().time
    soon = care.latency if time is None else min(care.latency, _LATE * time)
    return sum(left < soon for left in sight.leaving)


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
        (_fit(seen), f"the quota of {pool.site} leaves {volume(seen.quota or 0.0)} cores"),
    ):  # fmt: skip
        if order > most:
            words.append(why)
            order = max(0, most)
    return order


def _fit(seen: Seen) -> int:
    """Say how many more pilots the quota of the site leaves room for."""
    return 1 << 30 if seen.quota is None else int(seen.quota // seen.sight.cores)


def _calm(pool: Pool, seen: Seen) -> str:
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
