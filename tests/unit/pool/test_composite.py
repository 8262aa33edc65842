"""Composites: many pools as one, and a demand in parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.pool.composite import (
    Factory,
    FactoryPlan,
    Uniform,
    Weighted,
    census,
    uniform,
    weighted,
)
from pilotage.pool.controller import Linear
from pilotage.pool.decorator import Limiter
from pilotage.pool.fitness import Fitness
from pilotage.pool.model import Reading
from pilotage.pool.pipeline import explain
from tests.rigs.cluster.scripted_pool import ScriptedPool


def pool_of(supply: float, used: float | None = 1.0, demand: float = 0.0) -> ScriptedPool:
    found = ScriptedPool(f"of {supply}", demand)
    if supply:
        found.judge("pilot", supply, Fitness(used, used))
    return found


def demands(*pools):
    return [pool.demand for pool in pools]


def test_fitness_is_weighted_by_supply_whatever_the_parts_are_weighted_by():
    for weight in ("supply", "utilisation", "allocation"):
        # COBalD says 0.955 of this by utilisation.
        assert weighted(pool_of(10, 1.0), pool_of(1000, 0.05), weight=weight).utilisation == (
            pytest.approx(60 / 1010)
        )


def test_a_tree_is_the_same_as_its_leaves():
    leaves = [pool_of(3, 0.5), pool_of(5, 0.25), pool_of(8, 1.0), pool_of(0)]
    flat, tree = weighted(*leaves), weighted(weighted(*leaves[:3]), leaves[3])
    assert tree.view().reading == flat.view().reading


def test_what_supplies_nothing_does_not_count():
    assert uniform(pool_of(8, 0.5), pool_of(0)).utilisation == 0.5
    assert uniform(pool_of(0), pool_of(0)).view().reading.utilisation is None
    assert uniform(pool_of(0), pool_of(0)).utilisation == 1
    assert weighted().view().reading == Reading(0, 0)


def test_volumes_on_the_way_add_up():
    one, other = pool_of(1), pool_of(2)
    one.queued, other.booting, other.draining = 3, 4, 5
    found = weighted(one, other).view().reading
    assert (found.queued, found.booting, found.draining) == (3, 4, 5)


def test_what_one_cannot_take_goes_to_the_others():
    small, large = pool_of(50), pool_of(50)
    whole = weighted(Limiter(maximum=100) >> small, Limiter(maximum=5000) >> large)
    plan = whole.plan(whole.view(), 4000, 1)
    assert explain(plan)[0] == (
        "WeightedComposite: 4000 over 2 pools by supply; 1900 that some cannot take goes to others"
    )
    whole.act(plan)
    assert demands(small, large) == [100, 3900]


def test_what_nobody_can_take_is_not_remembered():
    pools = [pool_of(50), pool_of(50)]
    whole = weighted(*(Limiter(maximum=100) >> pool for pool in pools))
    pipeline = Linear() >> whole
    for _ in range(5):
        plan = pipeline.tick(3600)
    assert demands(*pools) == [100, 100]
    assert whole.demand == 200
    assert "3600 no pool can take" in explain(plan)[1]


def test_without_spilling_the_rest_is_lost_as_in_cobald():
    small, large = pool_of(50), pool_of(50)
    whole = weighted(Limiter(maximum=100) >> small, large, spill=False)
    whole.demand = 4000
    assert demands(small, large) == [100, 2000]
    assert whole.demand == 4000


def test_an_unknown_pool_gets_a_probe_and_not_a_full_share():
    good, new = pool_of(100, 0.9), pool_of(0)
    assert Weighted("utilisation").divide(190, [good.read(), new.read()]) == [90, 100]
    whole = weighted(good, new, weight="utilisation", probe=8)
    whole.demand = 190
    assert demands(good, new) == [182, 8]
    assert Weighted(probe=8).divide(10, [new.read(), new.read()]) == [5, 5]
    assert Weighted("utilisation", 8).divide(10, [Reading(4, 0, 0.0, 0.0), new.read()]) == [5, 5]
    assert Weighted(probe=8).divide(100, [good.read(), new.read()]) == [92, 8]


def test_equal_parts():
    pools = [pool_of(1), pool_of(2)]
    uniform(*pools).demand = 10
    assert demands(*pools) == [5, 5]
    assert Uniform().words() == "in equal parts"


def test_a_composite_of_nothing_takes_any_demand():
    whole = uniform()
    whole.demand = 3
    assert whole.demand == 3


def test_time_passes_below_also_if_nothing_is_asked_for():
    pools = [pool_of(1, demand=4), pool_of(2, demand=6)]
    whole = weighted(*pools)
    plan = whole.plan(whole.view(), None, 1)
    whole.act(plan)
    assert plan.taken == whole.demand == 10
    assert demands(*pools) == [4, 6]


ROW = st.tuples(st.floats(0, 1e4), st.none() | st.floats(0, 1), st.floats(0, 500))


@given(st.lists(ROW, min_size=1, max_size=8), st.floats(0, 1e4), st.booleans())
def test_all_of_a_demand_is_given_as_long_as_there_is_room(rows, wanted, by_use):
    pools = [pool_of(supply, used) for supply, used, _ in rows]
    most = [limit for *_, limit in rows]
    whole = weighted(
        *(Limiter(maximum=limit) >> pool for pool, limit in zip(pools, most, strict=True)),
        weight="utilisation" if by_use else "supply",
    )
    whole.demand = wanted
    given_out = sum(demands(*pools))
    assert given_out == pytest.approx(min(wanted, sum(most)), rel=1e-6, abs=1e-6)
    assert all(pool.demand <= limit for pool, limit in zip(pools, most, strict=True))


class Child:
    utilisation: float | None = 1.0
    allocation: float | None = 1.0

    def __init__(self, demand: float = 8.0, supply: float = 0.0) -> None:
        self.demand, self.supply = demand, supply


def test_a_census_orders_what_is_missing_and_lets_go_what_is_not_wanted():
    two = [Reading(8, 8, 0.5, 0.5), Reading(8, 8, 0.9, 0.9)]
    assert census(two, 20) == FactoryPlan(grow=4)
    assert census(two, 16) == FactoryPlan(grow=0)
    assert census(two, 8) == FactoryPlan(release=(0,))
    assert census(two, 9) == FactoryPlan()
    assert census([], 0) == FactoryPlan()


def test_orders_that_have_not_come_are_let_go_first():
    rows = [Reading(8, 8, 0.1, 0.1), Reading(0, 8), Reading(8, 8)]
    assert census(rows, 16) == FactoryPlan(release=(1,))
    assert census(rows, 8) == FactoryPlan(release=(1, 0))


def test_orders_are_taken_back_although_the_supply_is_below_the_demand():
    waiting = [Child() for _ in range(100)]
    factory = Factory(*waiting, factory=Child)
    factory.act(factory.plan(factory.view(), 160, 30))
    assert sum(one.demand for one in waiting) == 160


def test_a_factory_acts_once_an_interval_and_forgets_those_that_are_gone():
    made: list[Child] = []

    def make() -> Child:
        made.append(Child())
        return made[-1]

    factory = Factory(factory=make, interval=30)
    factory.demand = 20
    assert not factory.children
    plan = factory.plan(factory.view(), None, 30)
    assert plan.words == "20 more are ordered"
    factory.act(plan)
    assert len(factory.children) == 3
    assert factory.view().reading == Reading(0, 20, queued=24)
    for one in made:
        one.supply = 8.0
    plan = factory.plan(factory.view(), 8, 30)
    assert plan.words == "2 of 3 are let go"
    factory.act(plan)
    assert (len(factory.children), len(factory.leaving)) == (1, 2)
    assert factory.view().reading.draining == 16
    for one in made[:2]:
        one.supply = 0.0
    factory.act(factory.plan(factory.view(), None, 30))
    assert not factory.leaving


def test_a_factory_that_makes_nothing_is_refused():
    factory = Factory(factory=lambda: Child(0))
    with pytest.raises(errors.UsageError, match="a factory must make pools that have a demand"):
        factory.act(factory.plan(factory.view(), 1, 30))


def test_what_makes_no_sense_is_refused():
    with pytest.raises(errors.ConfigError, match="pools cannot be weighted by 'cost'"):
        weighted(weight="cost")  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError, match="probe is -1"):
        weighted(probe=-1)
