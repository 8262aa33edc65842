"""Rates, places and rest after failures."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.base.clock import dice
from pilotage.batch.connection import CircuitBreaker, CommandLimits, RateLimit
from pilotage.testing.clock import ManualClock


@given(
    st.floats(0.5, 100), st.lists(st.floats(0, 0.5), min_size=2, max_size=200)
)  # fmt: skip
def test_no_second_has_more_turns_than_the_rate_and_a_burst(rate, gaps):
    bucket, now, turns = RateLimit(rate), 1000.0, list[float]()
    for gap in gaps:
        now += gap
        turns.append(now + bucket.take(now))
    assert turns == sorted(turns)
    for begin in turns:
        within = [one for one in turns if begin <= one < begin + 1.0]
        assert len(within) <= max(1.0, rate) + rate + 1.01


def test_a_clock_that_goes_back_gives_no_turns():
    bucket = RateLimit(1.0)
    assert bucket.take(100.0) == 0
    assert bucket.take(50.0) == pytest.approx(1.0)


def test_failures_in_a_row_close_the_way_and_a_trial_opens_it():
    breaker = CircuitBreaker(dice(1), most=3, first=10.0)
    for at in (0.0, 1.0):
        assert breaker.may(at)
        breaker.failed(at)
    assert breaker.may(2.0)
    assert breaker.says(2.0) == ""
    breaker.failed(2.0, "no answer")
    assert not breaker.may(3.0)
    assert "no answer" in breaker.says(3.0)
    assert "next try in" in breaker.says(3.0)
    assert breaker.may(2.0 + 12.5)
    assert not breaker.may(2.0 + 12.5), "a second one while the trial is on its way"
    breaker.worked()
    assert breaker.may(15.0)
    assert breaker.failures == 0
    assert breaker.since is None


def test_pauses_grow_up_to_the_longest():
    breaker = CircuitBreaker(dice(2), most=1, first=1.0, longest=8.0)
    now, pauses = 0.0, list[float]()
    for _ in range(6):
        breaker.failed(now)
        began = now
        while not breaker.may(now):
            now += 0.05
        pauses.append(now - began)
    for pause, wanted in zip(pauses, (1, 2, 4, 8, 8, 8), strict=True):
        assert 0.75 * wanted <= pause <= 1.25 * wanted + 0.1


def test_a_trial_of_which_nothing_was_heard_may_be_followed_by_another():
    breaker = CircuitBreaker(dice(3), most=1, first=1.0)
    breaker.failed(0.0)
    assert breaker.may(2.0)
    breaker.undecided()
    assert breaker.may(2.0)


async def test_so_many_at_once_and_not_one_more():
    gate = CommandLimits("kit", at_once=2, per_second=1e6)
    here = most = 0

    async def one():
        nonlocal here, most
        async with gate.turn():
            here += 1
            most = max(most, here)
            await asyncio.sleep(0.005)
            here -= 1

    await asyncio.gather(*(one() for _ in range(10)))
    assert most == 2


async def test_while_the_way_is_closed_the_error_says_since_when():
    clock = ManualClock()
    gate = CommandLimits("kit", clock=clock, chance=dice(4))
    for _ in range(3):
        gate.failed("sbatch timed out")
    with pytest.raises(
        errors.Unavailable, match=r"kit has not answered since .*timed out.*next try"
    ):
        async with gate.turn():
            pytest.fail("it passed")
    clock.advance(10)
    async with gate.turn():
        with pytest.raises(errors.Unavailable):
            async with gate.turn():
                pytest.fail("it passed")
        gate.worked()
    assert gate.says() == ""
    async with gate.turn():
        pass
