"""Points in time by the five fields of cron: minute, hour, day of month, month, day of week.

Fields mean what they mean to Vixie's cron: if neither day field starts with `*`, a day has to fit
one of them, otherwise both. Clocks that change are met like this: a time that the clock skips
comes once, right after the gap, and a time that the clock shows twice comes the first time only.
A timer of every hour (or minute) is about time that passes: it neither makes up for what was
skipped nor pauses while the clock repeats itself.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec

from pilotage.base import errors

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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
    """What one of the five fields may hold."""

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
    """All the minutes that five fields of cron stand for."""

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
