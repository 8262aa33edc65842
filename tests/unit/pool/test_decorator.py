"""Shapes and pipelines: what is passed on, and that planning changes nothing."""

from __future__ import annotations

import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.pool.controller import Linear
from pilotage.pool.decorator import Buffer, BufferState, Coarser, Limiter, Logger, Standardiser
from pilotage.pool.fitness import Fitness
from pilotage.pool.model import Decorator, Pool, Reading, Target, View
from pilotage.pool.pipeline import Bound, Pipeline, explain
from tests.rigs.cluster.scripted_pool import ScriptedPool


def pool_of(supply: float = 10, demand: float = 10, used: float | None = 1.0) -> ScriptedPool:
    found = ScriptedPool("site", demand)
    if supply:
        found.judge("pilot", supply, Fitness(used, used))
    return found


def decorated(decorator, wanted, pool):
    bound = decorator >> pool
    plan = bound.plan(bound.view(), wanted, 1.0)
    return plan.demand, plan.words


@pytest.mark.parametrize(
    "decorator, wanted, passed, words",
    [
        (Standardiser(), 7.5, 7.5, ""),
        (Limiter(maximum=5), 7, 5, "7 becomes 5: the maximum"),
        (Limiter(minimum=8), 7, 8, "7 becomes 8: the minimum"),
        (Coarser(granularity=4), 7, 4, "4 in steps of 4"),
        (Standardiser(surplus=3), 70, 13, "70 becomes 13: at most 3 above the supply of 10"),
        (Standardiser(backlog=3), 1, 7, "1 becomes 7: at most 3 below the supply of 10"),
        (Standardiser(surplus=3, maximum=12), 70, 12, "70 becomes 12: the maximum"),
        (Standardiser(surplus=3, minimum=20), 70, 20, "70 becomes 20: the minimum"),
        (Coarser(granularity=4), math.inf, math.inf, ""),
    ],
)
def test_limits_are_kept_and_said(decorator, wanted, passed, words):
    assert decorated(decorator, wanted, pool_of()) == (passed, words)


def test_small_steps_add_up_to_a_large_one():
    pool = pool_of(demand=0)
    pipeline = Linear(rate=1) >> Coarser(granularity=4) >> pool
    seen = []
    for _ in range(9):
        pipeline.tick(1)
        seen.append(pool.demand)
    assert seen == [0, 0, 0, 4, 4, 4, 4, 8, 8]


def test_whoever_else_changes_a_demand_is_heard():
    pool = pool_of(demand=8)
    bound = Coarser(granularity=4) >> pool
    bound.demand = 9
    assert (bound.demand, pool.demand) == (9, 8)
    pool.demand = 40
    assert bound.demand == 40


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0.1, 100), st.floats(0, 100))
def test_bounds_overrule_all_else(supply, wanted, step, low):
    decorator = Standardiser(low, low + 50, step, 10, 10)
    passed, _ = decorated(decorator, wanted, pool_of(supply))
    assert low <= passed <= low + 50


def test_a_buffer_lets_through_the_newest_once_a_window():
    pool = pool_of(demand=0)
    bound = Buffer(window=3) >> pool
    seen = []
    for wanted in range(1, 9):
        bound.act(bound.plan(bound.view(), wanted, 1))
        assert bound.demand == wanted
        seen.append(pool.demand)
    assert seen == [1, 1, 1, 4, 4, 4, 7, 7]


def test_a_buffer_passes_what_waits_also_if_nothing_new_is_asked_for():
    pool = pool_of(demand=0)
    bound = Bound(Buffer(window=3), (Standardiser() >> pool), BufferState(0, 1))
    bound.act(bound.plan(bound.view(), 5, 1))
    assert bound.plan(bound.view(), None, 0.5).words == "5 waits for 0.5 s"
    bound.act(bound.plan(bound.view(), None, 1))
    assert pool.demand == 5


def test_a_logger_logs_what_is_done_and_not_what_is_planned(caplog):
    bound = Logger(message="%(target)s: %(demand)g to %(value)g, %(utilisation).1f") >> pool_of(
        used=None
    )
    with caplog.at_level(logging.INFO):
        plan = bound.plan(bound.view(), 12, 1)
        assert not caplog.records
        bound.act(plan)
        bound.act(bound.plan(bound.view(), None, 1))
    (record,) = caplog.records
    assert record.name == "site"
    assert record.getMessage() == "site: 10 to 12, nan"


def test_a_logger_of_another_name_and_level(caplog):
    bound = Logger("mine", level="debug") >> pool_of()
    with caplog.at_level(logging.DEBUG, "mine"):
        bound.demand = 3
    assert caplog.record_tuples == [
        ("mine", 10, "demand = 3 [demand=10, supply=10.0, utilisation=1.00, allocation=1.00]")
    ]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Standardiser(minimum=3, maximum=2), "minimum 3 is above maximum 2"),
        (lambda: Standardiser(granularity=0), "granularity is 0; it must be above 0"),
        (lambda: Standardiser(backlog=0), "backlog is 0"),
        (lambda: Standardiser(surplus=-1), "surplus is -1"),
        (lambda: Buffer(-1), "window is -1; it must not be below 0"),
        (lambda: Logger(message="%(cost)s"), "cannot be written: 'cost'"),
        (lambda: Logger(message="%(value)"), "cannot be written"),
        (lambda: Logger(level="loud"), "there is no level 'loud'"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(errors.ConfigError, match=message):
        make()


def test_planning_changes_nothing():
    pool = pool_of(demand=10)
    pipeline = Linear(rate=1) >> Buffer(0) >> Standardiser(maximum=11) >> pool
    first = pipeline.plan(pipeline.view(), 5)
    assert pipeline.plan(pipeline.view(), 5) == first
    assert pool.demand == 10
    assert explain(first) == [
        "Linear: allocation 1.00 is above 0.50: from 10 to 15",
        "    Standardiser: 15 becomes 11: the maximum",
    ]
    pipeline.act(first)
    assert pool.demand == 11


def test_joined_from_either_side_it_is_the_same():
    pool = pool_of()
    left = (Linear() >> Limiter()) >> (Buffer() >> Logger()) >> pool
    right = Linear() >> (Limiter() >> (Buffer() >> (Logger() >> pool)))
    for one in (left, right):
        assert isinstance(one, Pipeline)
        assert one.interval == 1
        view = one.view()
        names = []
        while view.below:
            names.append(view.name)
            (view,) = view.below
        assert [*names, view.name] == ["Standardiser", "Buffer", "Logger", "site"]


def test_a_shape_above_a_pool_is_a_pool():
    bound = Limiter(maximum=5) >> pool_of(demand=3)
    assert isinstance(bound.decorator, Decorator)
    assert all(isinstance(bound, kind) for kind in (Pool, Target))
    assert (bound.supply, bound.demand, bound.utilisation, bound.allocation) == (10, 3, 1, 1)


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(errors.UsageError, match="int is no pool: it has no supply"):
        Linear() >> 3  # type: ignore[operator]
    with pytest.raises(errors.UsageError, match="Linear cannot stand here"):
        Limiter() >> Linear() >> pool_of()
    with pytest.raises(errors.UsageError, match="a pipeline has a controller already"):
        Limiter() >> (Linear() >> pool_of())


def test_a_hold_leaves_limits_below_alone():
    pool = pool_of(supply=50, demand=60, used=0.6)
    pipeline = Linear(0.5, 0.8) >> Standardiser(surplus=1) >> pool
    pipeline.tick(1)
    assert pool.demand == 60


def test_a_view_shows_the_demand_as_the_stage_above_sees_it():
    below = View("x", Reading(5, 8, 0.5, 0.5, queued=3))
    assert Standardiser().see(below, None) == below.reading
    assert Buffer().see(below, BufferState(4.0)).demand == 4
    assert Buffer().see(below, BufferState(4.0)).queued == 3
