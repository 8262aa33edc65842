"""Cron: the same minutes as a walk through all of them, also when clocks change."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.event import timer

BERLIN = "Europe/Berlin"
#: Half-hour changes, changes at midnight, no changes, odd offsets.
ZONES = ("UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "America/Havana", "Asia/Kolkata")


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def times(text: str, start: str, count: int, zone: str = "UTC") -> list[str]:
    moment, found = at(start, zone), []
    for _ in range(count):
        moment = timer.parse(text).next(moment, zone)
        found.append(datetime.fromtimestamp(moment, ZoneInfo(zone)).isoformat(timespec="minutes"))
    return found


@pytest.mark.parametrize(
    "text, start, expected",
    [
        ("* * * * *", "2026-01-01T00:00:30", "2026-01-01T00:01"),
        ("*/15 * * * *", "2026-01-01T00:15", "2026-01-01T00:30"),
        ("30 2 * * mon-fri", "2026-01-02T03:00", "2026-01-05T02:30"),
        ("0 0 * * 7", "2026-01-01T00:00", "2026-01-04T00:00"),
        ("0 0 * * sat-sun", "2026-01-03T00:00", "2026-01-04T00:00"),
        ("0 0 * * fri-7", "2026-01-03T00:00", "2026-01-04T00:00"),
        ("0 0 * * sun-mon", "2026-01-04T00:00", "2026-01-05T00:00"),
        ("0 0 * * 7-1", "2026-01-04T00:00", "2026-01-05T00:00"),
        ("0 0 * * 7/2", "2026-01-01T00:00", "2026-01-04T00:00"),
        ("0 0 1,15 JUN,dec *", "2026-01-01T00:00", "2026-06-01T00:00"),
        ("10/20 5 * * *", "2026-01-01T05:30", "2026-01-01T05:50"),
        ("10-40/20 5 * * *", "2026-01-01T05:30", "2026-01-02T05:10"),
        # Either day field, as in Vixie's cron: Friday the 2nd, then the 13th.
        ("0 0 13 * fri", "2026-01-01T00:00", "2026-01-02T00:00"),
        ("0 0 13 * fri", "2026-01-09T00:00", "2026-01-13T00:00"),
        # Both, since one of them starts with a star.
        ("0 0 13 * */5", "2026-01-01T00:00", "2026-02-13T00:00"),
        ("0 0 */2 * sun", "2026-01-01T00:00", "2026-01-11T00:00"),
        ("0 0 29 2 *", "2096-03-01T00:00", "2104-02-29T00:00"),
        ("0 0 29 2 */7", "2026-01-01T00:00", "2032-02-29T00:00"),
        ("0 0 30 2 mon", "2026-01-31T00:00", "2026-02-02T00:00"),
        ("@hourly", "2026-01-01T00:00", "2026-01-01T01:00"),
        (" @Daily ", "2026-01-01T00:00", "2026-01-02T00:00"),
        ("@midnight", "2026-01-01T00:00", "2026-01-02T00:00"),
        ("@weekly", "2026-01-01T00:00", "2026-01-04T00:00"),
        ("@monthly", "2026-01-01T00:00", "2026-02-01T00:00"),
        ("@yearly", "2026-01-01T00:00", "2027-01-01T00:00"),
        ("@annually", "2026-01-01T00:00", "2027-01-01T00:00"),
        ("0 0 * * *", "1969-12-30T23:59", "1969-12-31T00:00"),
    ],
)
def test_next(text: str, start: str, expected: str):
    assert times(text, start, 1) == [expected + "+00:00"]


def test_a_skipped_time_comes_once_right_after_the_gap():
    assert times("30 2 * * *", "2026-03-28T12:00", 2, BERLIN) == [
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:30+02:00",
    ]
    assert times("*/10 2,3 * * *", "2026-03-29T00:00", 2, BERLIN) == [
        "2026-03-29T03:00+02:00",
        "2026-03-29T03:10+02:00",
    ]


def test_a_doubled_time_comes_once():
    assert times("30 2 * * *", "2026-10-24T12:00", 2, BERLIN) == [
        "2026-10-25T02:30+02:00",
        "2026-10-26T02:30+01:00",
    ]
    # Asked during the repetition, it is over.
    second = datetime(2026, 10, 25, 1, 10, tzinfo=UTC).timestamp()
    assert timer.parse("30 2 * * *").next(second, BERLIN) == at("2026-10-26T02:30", BERLIN)


def test_every_hour_is_every_hour_that_passes():
    assert times("30 * * * *", "2026-03-29T01:00", 3, BERLIN) == [
        "2026-03-29T01:30+01:00",
        "2026-03-29T03:30+02:00",
        "2026-03-29T04:30+02:00",
    ]
    assert times("30 * * * *", "2026-10-25T01:45", 3, BERLIN) == [
        "2026-10-25T02:30+02:00",
        "2026-10-25T02:30+01:00",
        "2026-10-25T03:30+01:00",
    ]


def test_a_day_that_a_place_skipped_comes_right_after_it():
    assert times("0 12 30 12 *", "2011-12-29T12:00", 1, "Pacific/Apia") == [
        "2011-12-31T00:00+14:00"
    ]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "the cron text '' has 0 fields, not 5"),
        ("* * * *", "the cron text '* * * *' has 4 fields, not 5"),
        ("* * * * * *", "the cron text '* * * * * *' has 6 fields, not 5"),
        ("60 * * * *", "'60' does not belong in the field 'minute'"),
        ("* 24 * * *", "'24' does not belong in the field 'hour'"),
        ("* * 0 * *", "'0' does not belong in the field 'day of month'"),
        ("* * * foo *", "'foo' does not belong in the field 'month'"),
        ("* * * * 8", "'8' does not belong in the field 'day of week'"),
        ("mon * * * *", "'mon' does not belong in the field 'minute'"),
        ("1, * * * *", "'' does not belong in the field 'minute'"),
        ("-1 * * * *", "'-1' does not belong in the field 'minute'"),
        ("*/0 * * * *", "'*/0' has step 0 in the field 'minute'"),
        ("*-5 * * * *", "'*-5' does not belong in the field 'minute'"),
        ("* 22-2 * * *", "'22-2' runs backwards in the field 'hour'"),
        ("* * * * fri-mon", "'fri-mon' runs backwards in the field 'day of week'"),
        (
            "0 0 30 2 *",
            "the cron text '0 0 30 2 *' never happens: no such month has a day 30",
        ),
        (
            "0 0 31 2,4,6 *",
            "the cron text '0 0 31 2,4,6 *' never happens: no such month has a day 31",
        ),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str):
    with pytest.raises(errors.BadRule) as caught:
        timer.parse(text)
    assert caught.value.message == message
    assert caught.value.hint


def test_unknown_words_are_named():
    with pytest.raises(errors.BadRule, match="'@reboot' is none of @hourly, @daily"):
        timer.parse("@reboot")


def test_a_range_that_runs_backwards_says_how_to_write_it():
    with pytest.raises(errors.BadRule) as caught:
        timer.parse("* 22-2 * * *")
    assert caught.value.hint == "write `22-23,0-2`"
    timer.parse("* 22-23,0-2 * * *")


@pytest.mark.parametrize(
    "zone",
    ["", "Nowhere/Atlantis", "../UTC", "/etc/passwd", "America", "a\0b", "\udc80", "x" * 999],
)
def test_unknown_zones_are_named(zone: str):
    with pytest.raises(errors.BadRule, match="there is no time zone"):
        timer.parse("@daily").next(0, zone)


@pytest.mark.parametrize("moment", [float("nan"), float("inf"), -1e300, 1e15])
def test_moments_without_a_calendar_are_named(moment: float):
    with pytest.raises(errors.UsageError):
        timer.parse("@daily").next(moment, "UTC")


def test_the_calendar_ends():
    with pytest.raises(errors.BadRule, match="no next time before the year 9999"):
        timer.parse("0 0 29 2 *").next(at("9996-03-01"), "UTC")


@given(st.text("0123456789*/-,@ abcdefjnmostuw?#LW\n\0é٣", max_size=24) | st.text(max_size=24))
def test_any_text_is_a_cron_or_a_bad_rule(text: str):
    try:
        found = timer.parse(text)
    except errors.BadRule as error:
        assert error.hint  # noqa: PT017 - either is right
    else:
        assert found.next(0, BERLIN) > 0


# -- against a walk through all minutes ----------------------------------------------------------


def field(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """Draw a field as text and as the numbers that it stands for."""
    numbers = st.integers(low, high)
    anything = st.just(("*", frozenset(range(low, high + 1))))
    single = numbers.map(lambda n: (str(n), frozenset([n])))
    several = st.frozensets(numbers, min_size=1, max_size=4).map(
        lambda found: (",".join(map(str, found)), found)
    )
    span = st.tuples(numbers, numbers, st.integers(1, 9)).map(
        lambda t: (
            f"{min(t[:2])}-{max(t[:2])}/{t[2]}",
            frozenset(range(min(t[:2]), max(t[:2]) + 1, t[2])),
        )
    )
    steps = st.integers(1, high).map(
        lambda step: (f"*/{step}", frozenset(range(low, high + 1, step)))
    )
    return st.one_of(anything, single, several, span, steps)


FIELDS = st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6))
Fields = tuple[tuple[str, frozenset[int]], ...]


def fits(fields: Fields, moment: datetime) -> bool:
    (_, minutes), (_, hours), (day_text, days), (_, months), (week_text, weekdays) = fields
    by_month, by_week = moment.day in days, moment.isoweekday() % 7 in weekdays
    stars = day_text.startswith("*") or week_text.startswith("*")
    return (
        moment.minute in minutes
        and moment.hour in hours
        and moment.month in months
        and ((by_month and by_week) if stars else (by_month or by_week))
    )


def walk(fields: Fields, start: int, minutes: int, zone: str) -> list[int]:
    """Look at every minute: which of them would a patient person with a clock call?"""
    place, found = ZoneInfo(zone), []
    flows = len(fields[1][1]) == 24
    # What the clock has shown before is over, and two days are enough to know.
    shown = max(local(moment, place) for moment in range(start - 2 * 86400, start + 1, 60))
    for moment in range(start + 60, start + 60 * minutes + 1, 60):
        now = local(moment, place)
        if flows:
            fire = fits(fields, clock(now))
        else:
            fire = any(fits(fields, clock(wall)) for wall in range(shown + 60, now + 1, 60))
        if fire:
            found.append(moment)
        shown = max(shown, now)
    return found


def local(moment: int, place: ZoneInfo) -> int:
    there = datetime.fromtimestamp(moment, place)
    return int(there.replace(tzinfo=UTC).timestamp())


def clock(wall: int) -> datetime:
    return datetime.fromtimestamp(wall, UTC)


#: Clocks change within a day or two of these.
CHANGES = (
    "2026-03-29", "2026-10-25", "2026-03-08", "2026-11-01", "2026-04-05", "2026-10-04",
    "2026-12-31", "2024-02-29",
)  # fmt: skip


@settings(max_examples=60)
@given(FIELDS, st.sampled_from(CHANGES), st.integers(-1500, 1500), st.sampled_from(ZONES))
@example(
    fields=tuple(
        (text, frozenset(values))
        for text, values in [
            ("0", [0]), ("*", range(24)), ("*", range(1, 32)), ("*", range(1, 13)),
            ("*", range(7)),
        ]
    ),
    day="2026-11-01", shift=-60, zone="America/Havana",
)  # fmt: skip
def test_it_finds_what_a_walk_through_all_minutes_finds(
    fields: Fields, day: str, shift: int, zone: str
):
    start = int(at(day)) + 60 * shift
    minutes = 3000
    try:
        parsed = timer.parse(" ".join(text for text, _ in fields))
    except errors.BadRule:
        assert walk(fields, start, minutes, zone) == []
        return
    found, moment = [], parsed.next(start, zone)
    while moment <= start + 60 * minutes:
        found.append(moment)
        assert parsed.next(moment - 0.25, zone) == moment
        moment = parsed.next(moment, zone)
    assert found == walk(fields, start, minutes, zone)


def test_rare_times_are_found_fast():
    begun = time.perf_counter()
    for _ in range(20):
        timer.parse("0 0 29 2 */7").next(at("2032-03-01"), BERLIN)
    assert time.perf_counter() - begun < 2
