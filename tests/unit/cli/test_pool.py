"""Commands on pools: what they say, and what they leave in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilotage.base import errors
from pilotage.cli import pool, pool_simulate, status, submit
from pilotage.cli.common import Common
from pilotage.cli.pool_simulate import SimulationOptions
from pilotage.cli.submit import SubmitOptions
from pilotage.job.model import Command, JobSpec, Resources
from pilotage.match.cluster import Clusters
from pilotage.pool import files, prospects, state
from pilotage.pool.model import Reading
from pilotage.pool.policy.aimd import Hinted, Windowed
from pilotage.pool.policy.model import Hint, Sight
from pilotage.pool.simulate.scenario import SCENARIOS
from pilotage.pool.state import PoolObservation, PoolOverrides

FILE = """
site = "cluster"
maximum = 8
ask_above = 4

[control]
patience = "1s"
haste = "1s"
"""


@pytest.fixture
def at(tmp_path: Path) -> Common:
    (tmp_path / "pilotage.toml").touch()
    (tmp_path / "pools").mkdir()
    (tmp_path / "pools/burst.toml").write_text(FILE)
    return Common(project=tmp_path)


def look_at(at: Common, waiting: float, memory: float = 1e12) -> None:
    """Write down what a hub would have seen."""
    sight = Sight("burst", "cluster", 1, memory, quota=8.0)
    hints = (Hint("1 core @burst", 1, 1.0, waiting),)
    seen = PoolObservation(sight, Reading(0.0, 0.0), waiting, group="burst", hints=hints)
    with at.open() as project, project.db.transaction():
        project.db.run(
            "pool_put", name="burst", demand=0.0, state="null", care="{}", died=0.0,
            looked=project.clock.now() - 10, seen=msgspec.json.encode(seen).decode(),
            words="so", asked="", reason="",
        )  # fmt: skip


def changed(at: Common) -> PoolOverrides:
    with at.open() as project:
        return state.rows(project.db)["burst"].changed


def data(answer: Any) -> Any:
    return answer.data


def test_a_pool_that_nobody_has_seen_is_listed_and_has_no_plan(at):
    (one,) = data(pool.ls(at=at))["pools"]
    assert (one["name"], one["state"], one["maximum"]) == ("burst", "not controlled", 8)
    planned = pool.plan(at=at)
    assert data(planned)["plan"] == []
    assert "burst has not been checked yet" in planned.notes[0]


def test_the_plan_says_what_would_be_done_and_why_and_does_nothing(at):
    look_at(at, 6.0)
    (one,) = data(pool.plan("burst", at=at))["plan"]
    assert one["does"]["order"] == 4
    assert "--allow" in one["does"]["why"]
    (one,) = data(pool.plan(at=at))["plan"]
    assert one["does"]["order"] == 4
    pool.set_("burst", changes=pool.Changes(allow=True), at=at)
    (one,) = data(pool.plan(at=at))["plan"]
    assert one["does"]["order"] > 4


def test_what_is_set_is_kept_and_reset(at):
    pool.set_("burst", changes=pool.Changes(maximum=4), at=at)
    pool.set_("burst", changes=pool.Changes(pending=2), at=at)
    assert changed(at) == PoolOverrides(maximum=4, pending=2)
    pool.set_("burst", changes=pool.Changes(reset=True, minimum=1), at=at)
    assert changed(at) == PoolOverrides(minimum=1)


@pytest.mark.parametrize(
    "changes",
    [
        pool.Changes(),
        pool.Changes(maximum=0),
        pool.Changes(minimum=9),
        pool.Changes(allow=True, ask_above=3),
    ],
)
def test_what_makes_no_sense_is_not_set(at, changes):
    with pytest.raises(errors.UsageError):
        pool.set_("burst", changes=changes, at=at)


def test_a_pool_is_paused_and_goes_on(at):
    look_at(at, 6.0)
    pool.pause("burst", at=at)
    assert data(pool.show("burst", at=at))["pool"]["state"] == "paused"
    assert data(pool.plan(at=at))["plan"][0]["does"]["order"] == 0
    pool.resume("burst", at=at)
    assert data(pool.show("burst", at=at))["pool"]["state"] == "controlled"


def test_a_pool_that_is_not_there_is_told(at):
    for act in (pool.show, pool.pause, pool.plan):
        with pytest.raises(errors.NotFound):
            act("nope", at=at)


def test_a_file_with_a_mistake_is_listed(at):
    (Path(str(at.project)) / "pools/burst.toml").write_text("maximum = 1\n")
    (one,) = data(pool.ls(at=at))["pools"]
    assert one["state"] == "bad file"


def test_a_pool_whose_site_is_not_there_says_so(at):
    (one,) = data(pool.ls(at=at))["pools"]
    assert "no site `cluster`" in one["trouble"]


def test_a_job_that_a_pool_will_run_is_not_called_hopeless(at):
    root = Path(str(at.project))
    (root / "sites").mkdir()
    (root / "sites/cluster.toml").write_text('batch = "local"\n')
    offered = submit.submit(("true",), options=SubmitOptions(requirements="pool == 'burst'"), at=at)
    assert any("waits for a pilot of pool burst" in one for one in offered.notes)
    assert data(status.status(at=at))["hopeless"] == []
    other = submit.submit(("true",), options=SubmitOptions(requirements="pool == 'other'"), at=at)
    assert not any("waits for a pilot" in one for one in other.notes)


def hopes(at: Common, **needs: Any) -> list[prospects.Hope]:
    """Say what pools would do for a job that has such needs."""
    recipe = Command(argv=("true",))
    kind = Clusters().of(JobSpec(name="j", recipe=recipe, resources=Resources(**needs)), "me")
    with at.open() as project:
        return prospects.hopes(project.db, project.root, kind, project.clock.now())


def test_no_pilot_is_hoped_for_that_would_end_before_the_job(at):
    root = Path(str(at.project))
    (root / "sites").mkdir()
    (root / "sites/cluster.toml").write_text('batch = "local"\n[defaults]\ntime = "1h"\n')
    assert [one.comes for one in hopes(at, time=3000.0)] == [True]
    (found,) = hopes(at, time=3600.0)
    assert not found.comes
    assert "longer than 1 h" in found.words
    (root / "pools/burst.toml").write_text(FILE + '[pilot]\ntime = "2h"\n')
    assert [one.comes for one in hopes(at, time=3600.0)] == [True]


def test_no_pilot_is_hoped_for_that_would_come_with_too_little_memory(at):
    root = Path(str(at.project))
    (root / "sites").mkdir()
    (root / "sites/cluster.toml").write_text('batch = "local"\n')
    assert [one.comes for one in hopes(at, memory=64 * 10**9)] == [True]
    look_at(at, 1.0, memory=8e9)
    assert [one.comes for one in hopes(at, memory=4 * 10**9)] == [True]
    (found,) = hopes(at, memory=64 * 10**9)
    assert not found.comes
    assert "came with 8 GB" in found.words


def test_a_job_hears_that_an_empty_pool_orders_at_its_next_look(at):
    look_at(at, 1.0)
    with at.open() as project:
        row = state.rows(project.db)["burst"]
        found = prospects.hope("burst", files.read(project.root, "burst"), row, row.looked)
    assert found.comes
    assert "as it looks next" in found.words


def test_a_world_is_simulated_with_the_parameters_of_a_pool(at, tmp_path):
    small = msgspec.structs.replace(SCENARIOS["steady"], hours=4, warm=1, name="small")
    file = tmp_path / "small.json"
    file.write_bytes(msgspec.json.encode(small))
    answer = pool_simulate.simulate(
        str(file), policy=("burst",), world=SimulationOptions(runs=2), at=at
    )
    assert [one["seed"] for one in data(answer)["runs"]] == [1, 2]
    assert all(one["score"] > 0 for one in data(answer)["runs"])
    with pytest.raises(errors.NotFound, match="no scenario"):
        pool_simulate.simulate("nowhere", at=at)


def test_without_hints_another_law_decides():
    from pilotage.pool.files import Aimd

    assert Aimd(rest="1m").policy() == Hinted(rest=60.0)
    assert Aimd(hint=False, rest="1m", tolerate=0.2).policy() == Windowed(rest=60.0)


def test_an_older_version_of_what_is_remembered_is_as_good_as_new(at):
    look_at(at, 1.0)
    with at.open() as project:
        with project.db.transaction():
            project.db._connection.execute("UPDATE pool SET seen = '{\"a\":1}', care = '[]'")
        row = state.rows(project.db)["burst"]
    assert row.seen is None
    assert row.care.deaths == 0
