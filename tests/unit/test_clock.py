"""Time and chance are handed in."""

from __future__ import annotations

import time

from pilotage import clock


def test_the_wall_clock_tells_the_time_of_the_machine():
    before = time.time()
    assert before <= clock.WallClock().now() <= time.time()


def test_a_manual_clock_stands_still_until_it_is_moved():
    ours = clock.ManualClock(5.0)
    assert (ours.now(), ours.now()) == (5.0, 5.0)
    ours.advance(2.5)
    assert ours.now() == 7.5


def test_dice_with_a_seed_fall_alike_and_others_do_not():
    assert [clock.dice(3).random() for _ in range(2)] == [clock.dice(3).random()] * 2
    assert clock.dice().random() != clock.dice().random()
