"""Clocks that jump: what counts in minutes and what waits for a moment must bear it."""

from __future__ import annotations

from pilotage.base import wakeup
from pilotage.rule import firing


def test_repeats_begin_anew_when_the_clock_is_set_back() -> None:
    repeats = firing.Repeats()
    assert [repeats.count("r", "/a", now) for now in (1000.0, 1030.0, 1059.0)] == [1, 2, 3]
    assert repeats.count("r", "/a", 500.0) == 1
    assert repeats.count("r", "/a", 600.0) == 1


def test_nobody_sleeps_through_a_jump_of_the_clock() -> None:
    assert wakeup.patience(None, 0.0) is None
    assert wakeup.patience(5.0, 7.0) == 0.0
    assert wakeup.patience(9.0, 7.0) == 2.0
    assert wakeup.patience(86_400.0, 0.0) == 60.0
