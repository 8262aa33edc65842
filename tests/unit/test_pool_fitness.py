"""How well pilots and pools are used, and what is not known."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.pool.composite.herd import Herd
from pilotage.pool.fitness import Basis, Feature, Fitness, efficiency, fitness
from pilotage.pool.model import Reading, known, mean

NODE = {
    "cpu": Feature(8, 6, 3),
    "memory": Feature(32, 8, 4),
    "disk": Feature(100, 90),
    "gpu": Feature(0),
}


def test_the_most_used_feature_is_the_allocation_and_the_least_used_one_the_utilisation():
    assert fitness(NODE) == Fitness(utilisation=0.25, allocation=0.9)


def test_a_feature_that_is_not_there_says_nothing():
    assert fitness({"gpu": Feature(0)}) == Fitness()
    assert fitness({}) == Fitness()


def test_an_idle_gpu_is_wasted():
    assert fitness({**NODE, "gpu": Feature(2)}).utilisation == 0


def test_more_than_there_is_counts_as_all_of_it():
    assert fitness({"cpu": Feature(8, 16, 9)}, Basis.MEASURED) == Fitness(1.0, 1.0)


@pytest.mark.parametrize(
    "basis, used",
    [
        (Basis.CLAIMED, 0.25),
        (Basis.MEASURED, 0.125),
        (Basis.EFFICIENCY, 0.5),
        (Basis.BOTH, 0.25),
    ],
)
def test_utilisation_can_be_taken_from_claims_measurements_or_efficiency(basis, used):
    found = fitness(NODE, basis)
    assert found.utilisation == used
    assert found.allocation == 0.9


def test_payloads_that_wait_for_the_network_show_in_the_efficiency():
    starved = {"cpu": Feature(8, 8, 0.8), "memory": Feature(32, 32, 30)}
    assert fitness(starved).utilisation == 1
    assert fitness(starved, Basis.EFFICIENCY).utilisation == pytest.approx(0.1)
    assert fitness(starved, Basis.BOTH).utilisation == pytest.approx(0.1)


def test_an_idle_pilot_is_known_to_be_idle_and_one_that_nobody_measured_is_not_known():
    assert efficiency(Feature(8, 0)) == 0
    assert efficiency(Feature(8, 4)) is None
    assert efficiency(None) is None
    assert fitness({"cpu": Feature(8, 4)}, Basis.BOTH).utilisation == 0.5


def test_what_supplies_nothing_is_neither_well_nor_badly_used():
    assert Reading.of(0, 5, 0.0, 0.0) == Reading(0.0, 5)
    assert Reading(0.0, 5).assumed() == Reading(0.0, 5, 1.0, 1.0)
    assert Reading(1.0, 5, None, 0.5).assumed() == Reading(1.0, 5, 1.0, 0.5)
    assert known(math.nan) is None


def test_a_mean_leaves_out_what_is_undefined():
    assert mean([(8, 1.0), (8, None), (24, 0.0)]) == 0.25
    assert mean([(8, None)]) is None
    assert mean([(0, 1.0)]) is None


def test_a_herd_weights_by_supply():
    herd = Herd("slurm", demand=99)
    herd.judge("big", 64, Fitness(0.0, 0.5))
    herd.judge("small", 16, Fitness(1.0, 1.0))
    herd.judge("new", 20, Fitness())
    assert herd.read() == Reading(100, 99, 0.2, 0.6)
    assert (herd.supply, herd.utilisation, herd.allocation) == (100, 0.2, 0.6)
    herd.drop("big")
    herd.drop("never there")
    assert herd.read() == Reading(36, 99, 1.0, 1.0)
    assert len(herd) == 2


def test_a_herd_of_none_is_undefined():
    herd = Herd("slurm")
    herd.put("one", 8, NODE)
    herd.drop("one")
    assert herd.read() == Reading(0.0, 0.0)


FRACTION = st.none() | st.floats(0, 1)
CHANGE = st.tuples(
    st.integers(0, 9), st.none() | st.tuples(st.floats(0.01, 1e6), FRACTION, FRACTION)
)


@given(st.lists(CHANGE, max_size=300))
def test_sums_of_changes_are_sums_of_what_is_there(changes):
    herd = Herd("any")
    there: dict[int, Any] = {}
    for pilot, row in changes:
        if row is None:
            herd.drop(str(pilot))
            there.pop(pilot, None)
        else:
            herd.judge(str(pilot), row[0], Fitness(row[1], row[2]))
            there[pilot] = row
    seen = herd.read()
    assert seen.supply == pytest.approx(sum(row[0] for row in there.values()), abs=1e-3)
    for place, found in ((1, seen.utilisation), (2, seen.allocation)):
        expected = mean([(row[0], row[place]) for row in there.values()])
        assert found == (None if expected is None else pytest.approx(expected, abs=1e-3))


def test_what_is_known_of_no_pilot_is_undefined_also_after_rounding():
    herd = Herd("slurm")
    herd.judge("whole", 1.0, Fitness())
    for supply in (0.1, 0.2):
        herd.judge(str(supply), supply, Fitness(0.5, 0.5))
    for supply in (0.1, 0.2):
        herd.drop(str(supply))
    seen = herd.read()
    assert seen.supply == pytest.approx(1.0)
    assert (seen.utilisation, seen.allocation) == (None, None)
