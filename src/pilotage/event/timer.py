"""Timers: when a rule is due, and what it missed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Literal

from pilotage.base import errors
from pilotage.event import cron as crons
from pilotage.event.model import Event, Kind

#: What is made up for after a pause.
CatchUp = Literal["none", "one", "all"]

#: The most missed ticks that are made up for; the newest are kept.
MOST_MISSED = 10_000

#: A tick that is late by less than this is due now rather than missed.
GRACE = 10.0

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def next_tick(every: float | None, cron: str, zone: str, last: float) -> float:
    """Find the first tick after `last`, in seconds since 1970 UTC."""
    _check(every, cron)
    if every is None:
        return crons.parse(cron).next(last, zone)
    return _at(_count(every, last) + 1, every)


def missed(
    every: float | None, cron: str, zone: str, last: float, now: float, catch_up: CatchUp
) -> list[float]:
    """List the ticks in (last, now] that are to fire, oldest first.

    `all` is the newest 10 000, `one` the newest; `none` is the newest if it is hardly late.
    """
    _check(every, cron)
    most = MOST_MISSED if catch_up == "all" else 1
    if now <= last:
        return []
    if every is None:
        found = _cron(crons.parse(cron), zone, last, now, most)
    else:
        newest = _count(every, now)
        oldest = max(_count(every, last) + 1, newest - most + 1)
        found = [_at(count, every) for count in range(oldest, newest + 1)]
    return [tick for tick in found if catch_up != "none" or now - tick < GRACE]


def tick(name: str, at: float, now: float) -> Event:
    """Make the event of a tick of a rule."""
    text = rfc3339(at)
    return Event(Kind.TIMER, name, now, text, data={"tick": text})


def rfc3339(moment: float) -> str:
    """Write a moment as `2026-01-31T23:59:59Z`."""
    written = (_EPOCH + timedelta(seconds=moment)).isoformat()
    return written.replace("+00:00", "Z")


def _check(every: float | None, cron: str) -> None:
    if (every is None) == (not cron):
        raise errors.BadRule("a timer has either `every` or `cron`", hint='write `every = "10m"`')
    if every is not None and not 0.001 <= every < math.inf:
        raise errors.BadRule(
            f"a timer cannot tick every {every!r} seconds", hint="the shortest is 1 ms"
        )


def _at(count: int, every: float) -> float:
    # Ticks have names in microseconds: what a float adds below that is noise.
    return round(count * every, 6)


def _count(every: float, moment: float) -> int:
    """Say which tick is the newest at a moment; tick 0 was at the start of 1970."""
    count = math.floor(moment / every)
    while _at(count + 1, every) <= moment:
        count += 1
    while _at(count, every) > moment:
        count -= 1
    return count


def _cron(cron: crons.Cron, zone: str, last: float, now: float, most: int) -> list[float]:
    # Look back further and further: a year's pause costs no more than the ticks that are kept.
    span = 3600.0
    while True:
        since = max(last, now - span)
        found = list(_between(cron, zone, since, now))
        if since == last or len(found) >= most:
            return found[-most:]
        span *= 2


def _between(cron: crons.Cron, zone: str, since: float, now: float) -> Iterator[float]:
    moment = cron.next(since, zone)
    while moment <= now:
        yield moment
        moment = cron.next(moment, zone)
