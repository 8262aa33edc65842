"""Our policies: each decision is pure, bounded, and says why."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from pilotage.node.exits import TOLD
from pilotage.pilot.model import PilotState
from pilotage.pool.policy import aimd, breaker
from pilotage.pool.policy.aimd import Hinted, Windowed
from pilotage.pool.policy.model import Act, Care, Hint, Memory, Need, PoolOrder, Sight
from pilotage.pool.policy.places import gain, places, ranked

THIN = Sight("thin", "hpc", 16, 32.0, free=(0,) * 17, quota=800)
FAT = Sight("fat", "hpc", 16, 96.0, free=(0,) * 17, quota=800)
CLOUD = Sight("cloud", "cloud", 8, 56.0, free=(0,) * 9, quota=80, lasting=True)
SMALL = Hint("1c/2GB", 1, 2.0, 100.0)
LARGE = Hint("8c/40GB", 8, 40.0, 80.0)


def sure(waiting: float) -> Memory:
    return Memory(0.0, {}, {SMALL.name: Need(waiting, waiting)})


def acts(orders: tuple[PoolOrder, ...]) -> dict[tuple[str, Act], int]:
    return {(one.pool, one.act): one.count for one in orders}


def full(sight: Sight, ready: int) -> Sight:
    return replace(sight, ready=ready, free=(ready, *(0,) * sight.cores))


def idle(sight: Sight, ready: int, seconds: float) -> Sight:
    free = (*(0,) * sight.cores, ready)
    return replace(sight, ready=ready, free=free, idle=(seconds,) * ready)


def test_a_need_must_last_before_drones_are_ordered_for_it():
    policy = Hinted()
    first = policy(60.0, [CLOUD, FAT], [SMALL], Memory())
    assert sum(one.count for one in first.orders) <= 2
    later = policy(60.0, [CLOUD, FAT], [SMALL], sure(100.0))
    assert sum(one.count for one in later.orders if one.act is Act.ORDER) > 10


def test_what_is_on_order_is_not_ordered_again():
    coming = replace(FAT, queued=13)
    verdict = Hinted(hedge=2.0)(60.0, [coming], [SMALL], sure(100.0))
    assert not [one for one in verdict.orders if one.act is Act.ORDER]


def test_orders_that_nothing_needs_are_cancelled():
    verdict = Hinted()(60.0, [replace(FAT, queued=9)], [replace(SMALL, waiting=0.0)], Memory())
    assert acts(verdict.orders) == {("fat", Act.CANCEL): 9}


def test_demand_never_runs_away_from_what_can_be_had():
    huge = Hint("1c/2GB", 1, 2.0, 1e6)
    verdict = Hinted()(60.0, [CLOUD, FAT], [huge], sure(1e6))
    counts = acts(verdict.orders)
    assert counts["cloud", Act.ORDER] <= 10
    assert counts["fat", Act.ORDER] <= 12


def test_of_one_provider_the_shape_that_fits_most_is_taken_unless_it_costs_more():
    assert places([THIN, FAT], SMALL, 0.7) == [FAT]
    dear = replace(FAT, price=2.0)
    assert places([THIN, dear], SMALL, 0.7) == [THIN]
    assert places([THIN, dear], LARGE, 0.7) == [dear]


def test_what_lasts_and_comes_soon_is_preferred():
    cares = {"fat": Care(600.0), "thin": Care(7200.0), "cloud": Care(3000.0)}
    assert [one.name for one in ranked([THIN, FAT, CLOUD], cares)] == ["cloud", "fat", "thin"]


def test_the_part_of_a_drone_that_jobs_can_use():
    assert gain(THIN, SMALL) == 1.0
    assert gain(THIN, Hint("", 1, 6.0, 1.0)) == 5 / 16
    assert gain(THIN, LARGE) == 0.0


def test_drones_that_drain_are_called_back_before_others_are_ordered():
    draining = replace(FAT, draining=8, callable=(14,) * 8)
    verdict = Hinted(tolerate=0.0)(60.0, [draining], [SMALL], sure(100.0))
    assert acts(verdict.orders) == {("fat", Act.RECALL): 8}


def test_a_hint_that_drones_contradict_is_not_believed():
    told = replace(SMALL, fits=True)
    needs = aimd.weigh([told], {}, 60.0, patience=900.0, haste=300.0)
    assert needs[SMALL.name] == Need(0.0, 0.0, 100.0)
    more = replace(SMALL, waiting=160.0)
    again = aimd.weigh([more], needs, 9000.0, patience=900.0, haste=300.0)
    assert again[SMALL.name].lasting == 60.0


def test_a_need_falls_at_once_and_rises_slowly():
    before = {SMALL.name: Need(50.0, 50.0)}
    up = aimd.weigh([SMALL], before, 90.0, patience=900.0, haste=300.0)[SMALL.name]
    assert (up.lasting, up.recent) == (55.0, 65.0)
    down = aimd.weigh([replace(SMALL, waiting=5.0)], before, 1.0, patience=900.0, haste=300.0)
    assert (down[SMALL.name].lasting, down[SMALL.name].recent) == (5.0, 5.0)


def test_idle_drones_are_released_after_a_rest_and_new_ones_later():
    policy = Hinted(rest=300.0, ski=0.0, fresh=6.0)
    assert policy(60.0, [idle(FAT, 2, 200.0)], [], Memory()).orders == ()
    released = policy(60.0, [idle(FAT, 2, 400.0)], [], Memory()).orders
    assert acts(released) == {("fat", Act.RELEASE): 2}
    fresh = replace(idle(FAT, 2, 0.0), idle=(), fresh=(400.0, 400.0))
    assert policy(60.0, [fresh], [], Memory()).orders == ()


def test_the_emptiest_drones_are_drained_while_others_have_room():
    free = [0] * 17
    free[15], free[4] = 1, 5
    verdict = Hinted(headroom=0.0)(60.0, [replace(FAT, ready=6, free=tuple(free))], [], Memory())
    assert acts(verdict.orders) == {("fat", Act.DRAIN): 1}


def test_where_drones_die_nothing_is_ordered_for_a_while_and_then_one():
    dying = replace(FAT, failed=3, queued=5)
    care = breaker.judge(Care(), dying, 0.0)
    assert not breaker.trusted(care)
    assert breaker.allowed(care, replace(FAT, queued=0), 10.0) == 0
    assert breaker.allowed(care, FAT, care.until) == 1
    assert breaker.trusted(breaker.judge(care, replace(FAT, joined=1), care.until))
    (cancelled,) = breaker.cancel([dying], {"fat": care}, 10.0)
    assert (cancelled.act, cancelled.count) == (Act.CANCEL, 5)


def test_others_take_over_where_drones_die():
    cares = {"fat": Care(deaths=5, until=1e6), "cloud": Care()}
    memory = Memory(0.0, cares, {SMALL.name: Need(100.0, 100.0)})
    counts = acts(Hinted()(60.0, [CLOUD, replace(FAT, queued=3)], [SMALL], memory).orders)
    assert counts == {("cloud", Act.ORDER): 10, ("fat", Act.CANCEL): 3}


def test_without_a_queue_there_is_always_one_drone_to_see_by():
    policy = Windowed()
    assert acts(policy(0.0, [CLOUD, FAT], [], Memory()).orders) == {("cloud", Act.ORDER): 1}
    assert policy(0.0, [replace(CLOUD, queued=1), FAT], [], Memory()).orders == ()
    alone = policy(9e3, [idle(CLOUD, 1, 9e3), FAT], [], Memory())
    assert alone.orders == ()


def test_without_a_queue_a_window_opens_while_there_is_no_room_and_closes_when_there_is():
    policy, memory, ordered = Windowed(), Memory(), 0
    for minute in range(60):
        verdict = policy(60.0 * minute, [full(CLOUD, 10), full(FAT, 10)], [], memory)
        memory = verdict.memory
        ordered += sum(one.count for one in verdict.orders if one.act is Act.ORDER)
    assert ordered > 0
    assert memory.window > 0
    roomy = replace(idle(FAT, 10, 0.0), queued=4)
    closed = policy(4800.0, [roomy], [], memory)
    assert closed.memory.window == 0.0
    assert acts(closed.orders) == {("fat", Act.CANCEL): 4}


def test_a_window_is_bounded():
    policy = Windowed(most=64.0, widest=2.0)
    memory = Memory(0.0, pressed=1e4, window=1e9)
    assert policy(60.0, [full(FAT, 10)], [], memory).memory.window <= 160 + 32


def test_each_decision_says_why():
    verdict = Hinted()(60.0, [CLOUD, FAT], [SMALL], sure(100.0))
    assert all("1c/2GB" in one.words and "to take" in one.words for one in verdict.orders)


def test_the_same_sights_give_the_same_verdict():
    policy = Hinted()
    assert policy(60.0, [CLOUD, FAT], [SMALL], sure(50.0)) == policy(
        60.0, [CLOUD, FAT], [SMALL], sure(50.0)
    )


@pytest.mark.parametrize("cores", [1, 8, 64])
def test_a_job_that_is_alone_gets_a_drone_at_once(cores: int):
    sight = Sight("a", "one", cores, 1e9, quota=640.0)
    verdict = Hinted()(30.0, [sight], [Hint("1 core", 1, 1.0, 1.0)], Memory())
    assert [(one.act, one.count) for one in verdict.orders] == [(Act.ORDER, 1)]
    coming = replace(sight, queued=1)
    after = Hinted()(60.0, [coming], [Hint("1 core", 1, 1.0, 1.0)], verdict.memory)
    assert after.orders == ()


def test_a_small_need_that_lasts_finds_a_drone_though_others_are_full():
    sight = Sight("a", "one", 8, 1e9, quota=640.0, ready=1, free=(1,))
    memory, ordered = Memory(), []
    for turn in range(1, 121):
        verdict = Hinted()(30.0 * turn, [sight], [Hint("1 core", 1, 1.0, 2.0)], memory)
        memory = verdict.memory
        ordered += [turn for one in verdict.orders if one.act is Act.ORDER]
    assert ordered
    # Others may end first; so not at once.
    assert ordered[0] > 30


def test_a_job_that_fills_no_drone_well_runs_where_it_fills_most():
    small, large = (
        Sight(name, name, 8, memory, quota=64.0) for name, memory in (("a", 16.0), ("b", 32.0))
    )
    verdict = Hinted()(30.0, [small, large], [Hint("1 core 12 GB", 1, 12.0, 1.0)], Memory())
    assert [(one.pool, one.act) for one in verdict.orders] == [("b", Act.ORDER)]


def test_a_clock_that_is_set_back_makes_no_pause_longer():
    care = breaker.judge(Care(deaths=3, until=1e6), CLOUD, 1000.0)
    assert care.until == 1000.0 + 7200.0
    assert breaker.judge(care, CLOUD, 2000.0) == care


def test_a_pilot_has_died_if_it_ended_early_from_outside_and_did_nothing():
    assert breaker.died(PilotState.FAILED, "", 5, 0, soon=False)
    assert breaker.died(PilotState.LOST, "", 0, 0, soon=True)
    assert not breaker.died(PilotState.LOST, "", 1, 0, soon=True)
    assert not breaker.died(PilotState.LOST, "", 0, 0, soon=False)
    assert breaker.died(PilotState.DOWN, TOLD, 0, 0, soon=True)
    assert not breaker.died(PilotState.DOWN, TOLD, 0, 1, soon=True)


def test_early_is_soon_after_a_pilot_came_and_before_its_lifetime_ends():
    assert breaker.early(1299.0, 1000.0, math.inf)
    assert not breaker.early(1300.0, 1000.0, math.inf)
    assert not breaker.early(1100.0, 1000.0, 1100.0)
    assert not breaker.proven(0, 1000.0, 1299.0)
    assert breaker.proven(0, 1000.0, 1300.0)
    assert breaker.proven(1, 1000.0, 1001.0)
