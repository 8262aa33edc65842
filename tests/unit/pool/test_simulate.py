"""The simulated world: what it counts is what happened, and a seed says it all."""

from __future__ import annotations

import math

from msgspec.structs import replace

from pilotage.pool.policy.aimd import Hinted, Windowed
from pilotage.pool.policy.model import PoolOrder
from pilotage.pool.simulate import dice
from pilotage.pool.simulate import scenario as own
from pilotage.pool.simulate.model import JobKind, Load, Machine, Outage, Provider, Scenario
from pilotage.pool.simulate.pilots import PilotPhase, SimulatedPilot
from pilotage.pool.simulate.run import run
from pilotage.pool.simulate.scenario import SCENARIOS
from pilotage.pool.simulate.trace import Past, recorded
from pilotage.pool.simulate.wheel import wheel
from pilotage.pool.simulate.world import World

SMALL = JobKind("small", 1, 1, 0.5, 0.5)
WIDE = JobKind("wide", 8, 8, 0.5, 0.5)
QUIET = Scenario(
    name="quiet",
    providers=(Provider("one", 32, 0.0, 0.0, 0.0),),
    machines=(Machine("m", "one", 8, 16, lifetime=2.0, boot=5),),
    kinds=(SMALL, WIDE),
    load=Load(low=0.0, high=0.0),
    hours=6,
    warm=0,
)
SHORT = replace(SCENARIOS["shifting"], hours=24, warm=2)


def steps(world: World, count: int) -> None:
    for _ in range(count):
        world.step()
        world.close()


def give(world: World, kind: int, minutes: int, count: int = 1) -> None:
    for _ in range(count):
        world.overlay.queues[kind].append((world.now, minutes))
        world.overlay.waiting += world.overlay.kinds[kind].cores


def is_in(pilot: SimulatedPilot, state: PilotPhase) -> bool:
    return pilot.state is state


def test_a_drone_waits_boots_works_and_ends():
    world = World(QUIET, 1)
    pilot = world.order(0)
    steps(world, 1)
    assert is_in(pilot, PilotPhase.BOOTING)
    steps(world, 5)
    assert is_in(pilot, PilotPhase.READY)
    give(world, 0, 200)
    steps(world, 1)
    assert pilot.jobs == 1
    steps(world, 120)
    assert (pilot.state, pilot.expired) == (PilotPhase.DRAINING, True)
    world.undrain(pilot)
    assert is_in(pilot, PilotPhase.DRAINING)
    steps(world, 90)
    assert is_in(pilot, PilotPhase.GONE)
    assert world.tally.held == world.tally.used == world.tally.draining == world.tally.tail == 0


def test_no_more_is_held_than_the_provider_allows():
    world = World(QUIET, 1)
    for _ in range(9):
        world.order(0)
    steps(world, 10)
    assert (len(world.pools[0].ready), len(world.pools[0].queued)) == (4, 5)


def test_an_order_can_be_taken_back():
    world = World(QUIET, 1)
    pilot = world.order(0)
    world.cancel(pilot)
    steps(world, 10)
    assert (pilot.state, world.tally.drones, world.tally.cancelled) == (PilotPhase.GONE, 0, 1)


def test_the_fullest_drone_gets_the_job_and_a_drain_can_be_undone():
    world = World(QUIET, 1)
    first, second = world.order(0), world.order(0)
    steps(world, 6)
    give(world, 0, 100, 3)
    steps(world, 1)
    give(world, 0, 100, 2)
    steps(world, 1)
    assert sorted((first.jobs, second.jobs)) == [0, 5]
    busy = max(first, second, key=lambda one: one.jobs)
    world.drain(busy)
    give(world, 0, 100)
    steps(world, 1)
    assert (first.jobs, second.jobs) in ((5, 1), (1, 5))
    world.undrain(busy)
    assert busy.state is PilotPhase.READY


def test_drones_are_kept_free_for_wide_jobs():
    world = World(replace(QUIET, reserve=50), 1)
    for _ in range(2):
        world.order(0)
    steps(world, 6)
    give(world, 0, 30, 12)
    steps(world, 1)
    give(world, 1, 30)
    steps(world, 1)
    give(world, 0, 60, 4)
    steps(world, 31)
    assert not world.overlay.queues[1]


def test_drones_die_where_the_provider_is_a_black_hole():
    world = World(replace(QUIET, failures=(Outage("one", 0.0, 6.0),)), 1)
    pilot = world.order(0)
    steps(world, 10)
    assert (pilot.state, world.pools[0].failed, world.tally.unused) == (PilotPhase.GONE, 1, 1)


def test_the_same_seed_gives_the_same_figures_and_another_others():
    policy = wheel(Hinted(), hints="noisy")
    assert run(SHORT, 5, policy) == run(SHORT, 5, policy)
    assert run(SHORT, 5, policy) != run(SHORT, 6, policy)


def test_all_core_hours_are_accounted_for():
    for policy in (wheel(Hinted(), hints="exact"), wheel(Windowed())):
        found = run(SHORT, 7, policy)
        assert math.isclose(found.held, found.used + found.waste)
        assert math.isclose(found.waste, sum(found.reasons.values()), abs_tol=1e-6)
        assert all(part >= 0 for part in found.reasons.values())
        assert found.started <= found.jobs
        assert 0.5 < found.utilisation < 1


def test_the_scenarios_ask_for_what_they_say():
    for name, cores in (
        ("shifting", (250, 900)),
        ("steady", (700, 950)),
        ("overload", 2 * (1700,)),
    ):
        scenario = SCENARIOS[name]
        jobs = [
            sum(scenario.kinds[kind].cores * steps for kind, steps in step)
            for seed in range(3)
            for step in dice.arrivals(scenario.load, scenario.kinds, scenario.hours, seed)
        ]
        mean = sum(jobs) / len(jobs)
        assert 0.6 * cores[0] < mean < 1.4 * cores[1]


def test_every_decision_is_heard_with_its_reason():
    heard: list[PoolOrder] = []
    run(SHORT, 8, wheel(Windowed(), listen=lambda _, order: heard.append(order)))
    assert len({order.act for order in heard}) >= 4
    assert all(order.words and order.count > 0 for order in heard)


def test_without_latency_jobs_hardly_wait():
    policy = Hinted(patience=60.0, haste=60.0, tolerate=0.0, hedge=1.0, stretch=100.0)
    assert run(SHORT, 9, wheel(policy, hints="exact"), instant=True).wait < 0.1


def test_recorded_jobs_are_replayed():
    past = [Past(1e6 + 30.0 * n, 1800.0, 1 + 7 * (n % 2), 1.5) for n in range(400)]
    trace = recorded(past)
    assert [kind.name for kind in trace.kinds] == ["1c/2GB", "8c/2GB"]
    assert sum(map(len, trace.steps)) == 400
    where, replayed, unfit = own.replay([*past, Past(1e6, 60.0, 64)], SHORT)
    assert (unfit, replayed.kinds, where.warm) == (1, trace.kinds, 0)
    found = run(where, 1, wheel(Hinted(), hints="exact"), jobs=replayed.steps)
    assert found.jobs == 400
    assert found.started > 200
