"""Policies that are tried side by side: COBalD's at the wheel, own pools, pictures."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pilotage.base import errors
from pilotage.batch.pilot_request import PilotRequest
from pilotage.cli import pool_simulate
from pilotage.cli.common import Common
from pilotage.cli.pool_simulate import SimulationOptions
from pilotage.compat.cobald import policies
from pilotage.hub.project import Project
from pilotage.pool.controller import Linear
from pilotage.pool.files import Even, Pool, Relative, SupplyStep, SupplySteps
from pilotage.pool.pipeline import Pipeline
from pilotage.pool.simulate import scenario
from pilotage.pool.simulate.model import JobKind, Load, Machine, Provider, Scenario
from pilotage.pool.simulate.run import Film, run
from pilotage.pool.simulate.scenario import SCENARIOS
from pilotage.pool.simulate.wheel import Lot, piped
from pilotage.pool.simulate.world import World

BUSY = Scenario(
    name="busy",
    providers=(Provider("one", 32, 0.0, 0.05, 0.1),),
    machines=(Machine("burst", "one", 4, 8, boot=1, price=2.0),),
    kinds=(JobKind("small", 1, 2, 0.5, 0.5),),
    load=Load(phase=6.0, idle=0.0, low=16.0, high=24.0),
    hours=12,
    warm=0,
)
PIPELINE = """
pipeline:
  - __type__: cobald.controller.linear.LinearController
    low_utilisation: 0.6
    high_allocation: 0.9
    rate: 0.01
    interval: 120
  - __type__: cobald.decorator.standardiser.Standardiser
    minimum: 4
    maximum: 16
  - !PilotagePool
    name: burst
"""


def film(world: Scenario, begin: Any) -> Film:
    found = Film()
    run(world, 1, found.watch(begin))
    return found


def test_a_lot_follows_its_demand_up_and_down_and_orders_no_more_than_may_wait():
    world = World(replace(BUSY, load=Load(low=0.0, high=0.0)), 1)
    lot = Lot(world, 0, pending=2)
    lot.demand = 20.0
    lot.settle()
    assert (len(world.pools[0].queued), lot.demand) == (2, 8.0)
    for _ in range(30):
        world.step()
        world.close()
    assert (lot.supply, lot.utilisation, lot.allocation) == (8.0, 0.0, 0.0)
    lot.demand = 1.0
    lot.settle()
    assert lot.supply == 4.0


@pytest.mark.parametrize(
    "kind", [Even(rate=0.01), Relative(first=4.0), SupplySteps(step=(SupplyStep(demand=16.0),))]
)
def test_kinds_of_cobald_steer_a_world(kind: Even | Relative | SupplySteps):
    taken = policies.control("it", kind, pools={})
    figures = run(BUSY, 1, taken.begin)
    assert figures.started > 50
    assert figures.orders > 2


def test_a_policy_keeps_within_the_bounds_of_a_pool():
    pools = {"burst": Pool(site="far", maximum=32, minimum=8, pending=3)}
    seen = film(BUSY, policies.control("it", Even(), pools=pools).begin)
    assert min(seen.demand[5:]) >= 8
    assert max(seen.supply) <= 32


def test_a_pipeline_of_cobald_steers_as_its_file_says(tmp_path: Path):
    file = tmp_path / "it.yaml"
    file.write_text(PIPELINE)
    assert policies.is_pipeline(str(file))
    seen = film(BUSY, policies.pipeline(file, {}).begin)
    assert min(seen.demand[1:]) >= 4
    assert max(seen.demand) == 16
    file.write_text(PIPELINE.replace("name: burst", "name: none"))
    with pytest.raises(errors.ConfigError, match="no pool `none` in this world"):
        run(BUSY, 1, policies.pipeline(file, {}).begin)


def test_controllers_are_asked_as_often_as_they_want():
    asked: list[float] = []

    class Counts(Linear, frozen=True):
        def decide(self, reading: Any, elapsed: float, state: Any = None) -> Any:
            asked.append(elapsed)
            return super().decide(reading, elapsed, state)

    run(
        replace(BUSY, hours=1), 1,
        piped(lambda _, lot: [Pipeline(Counts(interval=300.0), lot(0))]),
    )  # fmt: skip
    assert asked == [300.0] * 12


def test_what_is_held_has_a_price():
    begin = policies.control("aimd", policies.KINDS["aimd"], pools={}).begin
    dear = Film()
    figures = run(BUSY, 1, dear.watch(begin))
    assert dear.cost == pytest.approx(2.0 * figures.held)
    assert len(dear.supply) == 12 * 60


def test_a_world_of_own_pools_waits_as_their_sites_did():
    delay, spread = scenario.queue([600.0] * 5)
    assert (round(delay * 3600), spread) == (600, 0.0)
    assert scenario.queue([600.0, 60.0], delay=1800.0)[0] == 0.5
    # Two tell nothing.
    assert scenario.queue([600.0, 60.0]) == scenario.queue([])
    burst = Pool(site="far", maximum=64, pilot=PilotRequest(cpus=8, memory="16G", time="12h"))
    made = scenario.of_pools({"burst": burst}, {"far": [60.0, 60.0, 60.0]}, BUSY.kinds)
    (machine,), (provider,) = made.machines, made.providers
    assert (machine.cores, machine.memory, machine.lifetime) == (8, 16, 12.0)
    assert provider.capacity == 64
    assert math.isclose(provider.delay, 1 / 60)


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def at(tmp_path: Path) -> Common:
    (tmp_path / "pilotage.toml").touch()
    (tmp_path / "pools").mkdir()
    (tmp_path / "pools/burst.toml").write_text(
        'site = "far"\nmaximum = 8\n[pilot]\ncpus = 2\nmemory = "4G"\n'
    )
    return Common(project=tmp_path)


def lived(project: Project, count: int) -> None:
    """Leave jobs and pilots in the store, as a day of work would."""
    now = project.clock.now()
    spec = msgspec.json.encode({"resources": {"cpus": 1, "memory": 10**9}}).decode()
    with project.db.transaction():
        run = project.db._connection.execute
        run("INSERT INTO spec VALUES (1, 'd', 'work', 0, ?)", (spec,))
        for number in range(count):
            run(
                "INSERT INTO job (name, rule, spec, binding, state, reason, priority, not_before,"
                " limit_key, attempt, failures, created, started, ended, depth, tag)"
                " VALUES ('work', '', 1, '{}', 'done', '', 0, 0, '', 1, 0, ?, ?, ?, 0, '')",
                (now - 7200 + 30 * number, now - 7000, now - 6000),
            )
        for _ in range(4):
            run(
                "INSERT INTO pilot (name, site, pool, state, reason, digest, facts, enrolled, seen,"
                " wanted) VALUES ('p', 'far', 'burst', 'down', '', '', '{\"a\": 1}', ?, 0, ?)",
                (now - 100, now - 220),
            )


def test_jobs_of_the_project_are_replayed_on_its_own_pools(at: Common, tmp_path: Path):
    with pytest.raises(errors.UsageError, match="no job of this project"):
        pool_simulate.simulate("recorded", at=at)
    with at.open() as project:
        lived(project, 60)
    picture = tmp_path / "curves.svg"
    answer = pool_simulate.simulate(
        "recorded", policy=("burst", "blind", "linear"), world=SimulationOptions(pool=("burst",)),
        svg=picture, at=at,
    )  # fmt: skip
    runs = answer.data["runs"]
    assert [one["policy"] for one in runs] == ["burst", "blind", "linear"]
    assert all(one["jobs"] == 60 and one["served"] == pytest.approx(1.0) for one in runs)
    assert all(max(one["curves"]["supply"]) <= 8 for one in runs)
    assert all(one["cost"] == pytest.approx(one["held"]) for one in runs)
    ET.fromstring(picture.read_text())  # noqa: S314 - our own


def test_what_there_is_not_is_said(at: Common, tmp_path: Path):
    small = tmp_path / "small.json"
    small.write_bytes(msgspec.json.encode(replace(SCENARIOS["steady"], hours=1, warm=0)))
    for wanted, words in (
        ({"policy": ("nope",)}, "no policy `nope`"),
        ({"world": SimulationOptions(pool=("nope",))}, "no pool `nope`"),
    ):
        with pytest.raises(errors.NotFound, match=words):
            pool_simulate.simulate(str(small), **wanted, at=at)
    with pytest.raises(errors.UsageError, match="between 1 and"):
        pool_simulate.simulate(str(small), world=SimulationOptions(runs=0), at=at)
    (tmp_path / "pools/far.toml").write_text(
        'site = "far"\nmaximum = 8\n[control]\nkind = "outside"\n'
    )
    with pytest.raises(errors.UsageError, match="external controller"):
        pool_simulate.simulate(str(small), policy=("far",), at=at)
