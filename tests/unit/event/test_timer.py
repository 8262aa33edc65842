"""Timers: anchored ticks, pauses, and events."""

from __future__ import annotations

import itertools
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.event import timer
from pilotage.event.model import Event, EventKind

NOON = datetime.fromisoformat("2026-06-01T12:00:00+00:00").timestamp()


def test_ticks_are_multiples_since_1970():
    assert timer.next_tick(600, "", "UTC", NOON) == NOON + 600
    assert timer.next_tick(600, "", "UTC", NOON + 1) == NOON + 600
    assert timer.next_tick(600, "", "UTC", NOON - 0.5) == NOON
    assert timer.next_tick(0.1, "", "UTC", NOON) == NOON + 0.1


def test_cron_ticks():
    assert timer.next_tick(None, "0 12 * * *", "Europe/Berlin", NOON) == NOON + 22 * 3600


@given(st.floats(0.001, 1e7), st.floats(0, 4e9))
def test_the_next_tick_is_later_and_none_is_between(every: float, last: float):
    tick = timer.next_tick(every, "", "UTC", last)
    assert last < tick <= last + every + 1e-5
    # Whoever starts again in between comes to the same tick.
    assert timer.next_tick(every, "", "UTC", (last + tick) / 2) == tick or tick - last < 1e-5
    assert timer.missed(every, "", "UTC", last, tick, "all") == [tick]
    assert timer.next_tick(every, "", "UTC", tick) > tick


@given(st.floats(0.5, 1e5), st.floats(0, 4e9), st.floats(0, 1e5))
def test_missed_ticks_are_those_that_next_tick_walks_through(every: float, last: float, gap: float):
    now = last + min(gap, 300 * every)
    walked, tick = [], timer.next_tick(every, "", "UTC", last)
    while tick <= now:
        walked.append(tick)
        tick = timer.next_tick(every, "", "UTC", tick)
    assert timer.missed(every, "", "UTC", last, now, "all") == walked
    assert timer.missed(every, "", "UTC", last, now, "one") == walked[-1:]


@pytest.mark.parametrize(
    "catch_up, expected",
    [("all", [-1800, -1200, -600, 0]), ("one", [0]), ("none", [])],
)
@pytest.mark.parametrize("every, cron", [(600, ""), (None, "*/10 * * * *")])
def test_after_a_pause(
    every: float | None, cron: str, catch_up: timer.CatchUp, expected: list[int]
):
    found = timer.missed(every, cron, "UTC", NOON - 2400, NOON + 60, catch_up)
    assert found == [NOON + shift for shift in expected]


def test_without_catching_up_a_tick_that_is_hardly_late_is_due():
    def due(late: float) -> list[float]:
        return timer.missed(600, "", "UTC", NOON - 6000, NOON + late, "none")

    assert due(0) == due(timer.GRACE - 0.1) == [NOON]
    assert due(timer.GRACE) == []


@pytest.mark.parametrize("every, cron", [(60, ""), (None, "* * * * *")])
def test_a_long_pause_keeps_the_newest(every: float | None, cron: str):
    found = timer.missed(every, cron, "UTC", 0, NOON, "all")
    assert len(found) == timer.MOST_MISSED
    assert found[-1] == NOON
    assert {later - earlier for earlier, later in itertools.pairwise(found)} == {60}


def test_a_pause_with_nothing_in_it():
    assert timer.missed(None, "@yearly", "UTC", NOON - 86400, NOON, "all") == []
    assert timer.missed(None, "@yearly", "UTC", 0, NOON, "one") == [
        datetime.fromisoformat("2026-01-01T00:00:00+00:00").timestamp()
    ]
    # A clock that was set back.
    assert timer.missed(60, "", "UTC", NOON, NOON - 3600, "all") == []


@pytest.mark.parametrize(
    "every, cron",
    [(None, ""), (60.0, "@daily"), (0.0, ""), (-1.0, ""), (float("nan"), ""), (float("inf"), "")],
)
def test_what_is_no_timer_is_named(every: float | None, cron: str):
    with pytest.raises(errors.BadRule):
        timer.next_tick(every, cron, "UTC", NOON)
    with pytest.raises(errors.BadRule):
        timer.missed(every, cron, "UTC", NOON, NOON + 1, "one")


def test_the_event_of_a_tick():
    text = "2026-06-01T12:00:00Z"
    assert timer.tick("nightly", NOON, NOON + 0.25) == Event(
        EventKind.TIMER, "nightly", NOON + 0.25, text, data={"tick": text}
    )
    assert timer.tick("fast", NOON + 0.1, NOON).version == "2026-06-01T12:00:00.100000Z"
