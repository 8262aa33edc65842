"""Timers: cron fields and intervals, when a rule is due, and which ticks it missed."""

from __future__ import annotations

import calendar
import math
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Literal
from zoneinfo import ZoneInfo

import msgspec

from pilotage.base import errors
from pilotage.event.model import Event, EventKind

_DAY = 86400
#: Before and after these moments there may be no local time that Python can write.
_FIRST, _LAST = -62_000_000_000, 253_370_000_000
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_HINT = "write minute, hour, day of month, month and day of week, such as `30 2 * * mon-fri`"
_PART = re.compile(r"(?:\*|([a-z]+|\d{1,4})(?:-([a-z]+|\d{1,4}))?)(?:/(\d{1,4}))?", re.ASCII)


class _Field(msgspec.Struct, frozen=True):
    """The values that one of the five fields may have."""

    #: What people call it.
    name: str
    #: The smallest value.
    low: int
    #: The largest value.
    high: int
    #: Words for values.
    words: dict[str, int] = {}


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, {word: number for number, word in enumerate(_MONTHS, 1)}),
    _Field("day of week", 0, 6, {word: number for number, word in enumerate(_WEEKDAYS)}),
)


class Cron(msgspec.Struct, frozen=True):
    """The minutes that five fields of cron describe."""

    #: The fields as they were written.
    text: str
    #: Minutes of the hour, in order.
    minutes: tuple[int, ...]
    #: Hours of the day, in order.
    hours: tuple[int, ...]
    #: Days of the month.
    days: frozenset[int]
    #: Months of the year, in order; January is 1.
    months: tuple[int, ...]
    #: Days of the week; Sunday is 0.
    weekdays: frozenset[int]
    #: Whether a day has to fit one of the two day fields only.
    either: bool

    def next(self, after: float, zone: str) -> float:
        """Find the first moment after another, both in seconds since 1970 UTC."""
        place = load_zone(zone)
        if not _FIRST < after < _LAST:
            raise errors.UsageError(f"there is no calendar for the moment {after!r}")
        best: float | None = None
        for wall in self._walls(self._start(after, place)):
            moments = self._moments(wall, place)
            # An hour that the clock shows twice: its first time round may be over or still to come.
            if moments and best is not None and moments[0] >= best:
                break
            coming = [moment for moment in moments if moment > after]
            if coming:
                best = coming[0] if best is None else min(best, coming[0])
        if best is None:
            raise errors.BadRule(f"{self.text!r} has no next time before the year 9999")
        return best

    def _start(self, after: float, place: ZoneInfo) -> int:
        # Times of the clock are counted in seconds too, as if the clock showed UTC.
        offset = _offset(after, place)
        wall = int(after // 1) + offset
        if self._flows:
            wall -= max(0, offset - _offset(after + _DAY, place))
        return wall - wall % 60

    @property
    def _flows(self) -> bool:
        return len(self.hours) == 24

    def _moments(self, wall: int, place: ZoneInfo) -> list[int]:
        before = _offset(wall - 1.5 * _DAY, place)
        after = _offset(wall + 1.5 * _DAY, place)
        if before == after:
            return [wall - before]
        change = _change(wall, place, before)
        first = [wall - before] if wall - before < change else []
        second = [wall - after] if wall - after >= change else []
        return first + second if self._flows else (first + second or [change])[:1]

    def _walls(self, start: int) -> Iterator[int]:
        for day in self._dates((_EPOCH + timedelta(seconds=start)).date()):
            midnight = (day - _EPOCH.date()).days * _DAY
            for hour in self.hours:
                begin = midnight + hour * 3600
                if begin + 3600 > start:
                    moments = (begin + minute * 60 for minute in self.minutes)
                    yield from (moment for moment in moments if moment >= start)

    def _dates(self, start: date) -> Iterator[date]:
        for year in range(start.year, 9999):
            for month in self.months:
                if (year, month) < (start.year, start.month):
                    continue
                for number in range(1, calendar.monthrange(year, month)[1] + 1):
                    day = date(year, month, number)
                    if day >= start and self._fits(day):
                        yield day

    def _fits(self, day: date) -> bool:
        by_month = day.day in self.days
        by_week = day.isoweekday() % 7 in self.weekdays
        return (by_month or by_week) if self.either else (by_month and by_week)


@lru_cache(maxsize=1024)
def parse(text: str) -> Cron:
    """Read five fields of cron, or a word such as `@daily`."""
    words = _SHORT.get(text.strip().lower(), text).lower().split()
    if len(words) != len(_FIELDS):
        what = f"has {len(words)} fields, not 5"
        if text.strip().startswith("@"):
            what = f"is none of {', '.join(_SHORT)}"
        raise errors.BadRule(f"the cron text {text!r} {what}", hint=_HINT)
    minutes, hours, days, months, weekdays = (
        _values(word, field) for word, field in zip(words, _FIELDS, strict=True)
    )
    either = not (words[2].startswith("*") or words[4].startswith("*"))
    # The 400 years after which the calendar repeats put every date on every day of the week.
    if not either and not any(min(days) <= _longest(month) for month in months):
        raise errors.BadRule(
            f"the cron text {text!r} never happens: no such month has a day {min(days)}",
            hint="change the day of month or the month",
        )
    return Cron(
        text, tuple(sorted(minutes)), tuple(sorted(hours)), days, tuple(sorted(months)), weekdays,
        either,
    )  # fmt: skip


def load_zone(name: str) -> ZoneInfo:
    """Find a time zone by its name, such as `Europe/Berlin`."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise errors.BadRule(
            f"there is no time zone {name!r}", hint="write `UTC` or a place, as `Europe/Berlin`"
        ) from None


def _values(text: str, field: _Field) -> frozenset[int]:
    return frozenset(value for part in text.split(",") for value in _part(part, field))


def _part(text: str, field: _Field) -> list[int]:
    found = _PART.fullmatch(text)
    if found is None:
        raise _wrong(text, field)
    start, stop, step = found.groups()
    low = field.low if start is None else _number(start, field)
    high = low if start and not step else max(low, field.high)
    if stop:
        high = _number(stop, field)
    if step and int(step) == 0:
        raise errors.BadRule(f"{text!r} has step 0 in the field {field.name!r}", hint=_HINT)
    if field.name == "day of week":
        # Sunday is both the first and the last day of the week.
        low, high = low % 7 if stop else low, high or (7 if low % 7 else 0)
    if high < low:
        ends = f"{start}-{field.high},{field.low}-{stop}"
        raise errors.BadRule(
            f"{text!r} runs backwards in the field {field.name!r}", hint=f"write `{ends}`"
        )
    values = range(low, high + 1, int(step or 1))
    return [value % 7 for value in values] if field.name == "day of week" else list(values)


def _number(text: str, field: _Field) -> int:
    value = int(text) if text.isdigit() else field.words.get(text, -1)
    if not field.low <= value <= (7 if field.name == "day of week" else field.high):
        raise _wrong(text, field)
    return value


def _wrong(text: str, field: _Field) -> errors.BadRule:
    words = f" or {', '.join(field.words)}" if field.words else ""
    return errors.BadRule(
        f"{text!r} does not belong in the field {field.name!r}",
        hint=f"it takes {field.low} to {field.high}{words}, `*`, lists, ranges and steps",
    )


def _longest(month: int) -> int:
    return calendar.monthrange(2000, month)[1]


def _offset(moment: float, place: ZoneInfo) -> int:
    offset = (_EPOCH + timedelta(seconds=moment)).astimezone(place).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def _change(wall: int, place: ZoneInfo, before: int) -> int:
    old, new = int(wall - 1.5 * _DAY), int(wall + 1.5 * _DAY)
    while new - old > 1:
        middle = (old + new) // 2
        if _offset(middle, place) == before:
            old = middle
        else:
            new = middle
    return new


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
        return parse(cron).next(last, zone)
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
        found = _cron(parse(cron), zone, last, now, most)
    else:
        newest = _count(every, now)
        oldest = max(_count(every, last) + 1, newest - most + 1)
        found = [_at(count, every) for count in range(oldest, newest + 1)]
    return [tick for tick in found if catch_up != "none" or now - tick < GRACE]


def tick(name: str, at: float, now: float) -> Event:
    """Make the event of a tick of a rule."""
    text = rfc3339(at)
    return Event(EventKind.TIMER, name, now, text, data={"tick": text})


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
    """Return the newest tick at a moment; tick 0 was at the start of 1970."""
    count = math.floor(moment / every)
    while _at(count + 1, every) <= moment:
        count += 1
    while _at(count, every) > moment:
        count -= 1
    return count


def _cron(cron: Cron, zone: str, last: float, now: float, most: int) -> list[float]:
    # Look back further and further: a year's pause costs no more than the ticks that are kept.
    span = 3600.0
    while True:
        since = max(last, now - span)
        found = list(_between(cron, zone, since, now))
        if since == last or len(found) >= most:
            return found[-most:]
        span *= 2


def _between(cron: Cron, zone: str, since: float, now: float) -> Iterator[float]:
    moment = cron.next(since, zone)
    while moment <= now:
        yield moment
        moment = cron.next(moment, zone)
