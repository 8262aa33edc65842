"""How well pilots and pools are used, and what is not known."""

from __future__ import annotations

import math

import pytest

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
