"""Time and chance are handed in."""

from __future__ import annotations

import time

import anyio
import pytest

from pilotage.base import clock
from pilotage.testing.clock import ManualClock


def test_the_wall_clock_tells_the_time_of_the_machine():
    before = time.time()
    assert before <= clock.WallClock().now() <= time.time()


def test_patience_is_measured_by_a_clock_that_nobody_sets():
    before = time.monotonic()
    assert before <= clock.WallClock().steady() <= time.monotonic()


def test_a_manual_clock_stands_still_until_it_is_moved():
    ours = ManualClock(5.0)
    assert (ours.now(), ours.now(), ours.steady()) == (5.0, 5.0, 5.0)
    ours.advance(2.5)
    assert ours.now() == ours.steady() == 7.5


@pytest.mark.anyio
async def test_who_sleeps_by_a_manual_clock_wakes_when_it_was_moved_far_enough():
    ours, woken = ManualClock(), list[float]()

    async def sleep(seconds: float) -> None:
        await ours.sleep(seconds)
        woken.append(seconds)

    async with anyio.create_task_group() as tasks:
        for seconds in (3.0, 1.0):
            tasks.start_soon(sleep, seconds)
        for expected in ([], [1.0], [1.0], [1.0, 3.0]):
            await anyio.wait_all_tasks_blocked()
            assert woken == expected
            ours.advance(1.0)


def test_dice_with_a_seed_fall_alike_and_others_do_not():
    assert [clock.dice(3).random() for _ in range(2)] == [clock.dice(3).random()] * 2
    assert clock.dice().random() != clock.dice().random()
