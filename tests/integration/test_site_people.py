"""People call jobs off, hold them and drain sites, at every moment of a job's way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pilotage.batch import records
from pilotage.hub.project import Project
from pilotage.job.model import State
from tests.rigs.cluster import batch_site
from tests.rigs.cluster.batch_site import SITE, SiteProject
from tests.rigs.cluster.misbehaving.double import Misbehaving

pytestmark = pytest.mark.slow


@pytest.fixture
def double(tmp_path: Path) -> Iterator[Misbehaving]:
    with Misbehaving(tmp_path / "scheduler", scale=0.05) as scheduler:
        yield scheduler


@pytest.fixture
def farm(tmp_path: Path, double: Misbehaving) -> SiteProject:
    return batch_site.on_double(tmp_path / "p", double.bin)


Act = Callable[[Project], object]


def ask(what: str, job: int) -> Act:
    if what == "cancel":
        return lambda project: project.cancel([job])
    return lambda project: project.hold([job])


MEANS = {"cancel": State.CANCELLED, "hold": State.HELD}


def ask_both(farm: SiteProject, *jobs: int) -> None:
    """Cancel one job and hold the other, and wait until they are."""
    for what, job in zip(MEANS, jobs, strict=True):
        farm.change(ask(what, job))
    wait_both(farm, *jobs)


def wait_both(farm: SiteProject, *jobs: int) -> None:
    for state, job in zip(MEANS.values(), jobs, strict=True):
        farm.wait_state(state, jobs=[job])


def test_while_the_site_cannot_be_reached(farm: SiteProject, double: Misbehaving) -> None:
    farm.settings(f'batch = "slurm"\npath = ["{double.bin}"]\npython = "/nowhere/python"\n')
    jobs = farm.submit(2)
    with farm.up():
        farm.wait_state(State.STAGING_IN)
        farm.wait(lambda: all("nowhere" in farm.job(job).reason for job in jobs))
        for what, job in zip(MEANS, jobs, strict=True):
            farm.change(ask(what, job))
        # They were never sent, but that is found out only there if there is an order of them.
        farm.settings(f'batch = "slurm"\npath = ["{double.bin}"]\n')
    with farm.up():
        wait_both(farm, *jobs)
    assert not farm.ran()
    assert double.accepted() == []


def test_while_it_is_submitted(farm: SiteProject, double: Misbehaving) -> None:
    double.plan("sbatch", "slow")
    called, held, other = farm.submit(3)
    with farm.up():
        farm.wait(lambda: "sbatch slow" not in double.left())
        ask_both(farm, called, held)
        farm.wait_ended(other)
    assert farm.ran() == {other: 1}
    assert farm.job(other).state is State.DONE


def test_while_it_runs(farm: SiteProject) -> None:
    called, held, other = farm.submit(3, gate=True)
    with farm.up():
        farm.wait(lambda: len(farm.ran()) == 3)
        ask_both(farm, called, held)
        farm.gate.touch()
        farm.wait_ended(other)
        farm.change(lambda project: project.release([held]))
        farm.wait_ended(held)
    assert farm.ran() == {called: 1, held: 2, other: 1}


def test_after_a_restart_of_the_hub(farm: SiteProject) -> None:
    one, other = farm.submit(2, gate=True)
    with farm.up():
        farm.wait(lambda: len(farm.ran()) == 2)
    farm.change(ask("cancel", one))
    with farm.up():
        farm.wait_state(State.CANCELLED, jobs=[one])
        farm.gate.touch()
        farm.wait_ended(other)
    assert farm.ran() == {one: 1, other: 1}
    assert farm.job(other).state is State.DONE


def test_a_site_that_is_drained_finishes_what_it_has(farm: SiteProject) -> None:
    def drain(asked: str) -> None:
        with Project(farm.root) as project, project.change() as db:
            records.ask(db, SITE, asked, by="me", why="", now=0.0)

    (first,) = farm.submit(1, gate=True)
    with farm.up():
        farm.wait(farm.ran)
        drain("drain")
        farm.gate.touch()
        farm.wait_ended(first)
    (second,) = farm.submit(1)
    with farm.up():
        farm.wait(lambda: farm.site()["seen"] and not farm.site()["trouble"])
        assert farm.job(second).state is State.QUEUED
        drain("")
        farm.wait_ended(second)
    farm.exactly_once([first, second])


def test_a_site_whose_folder_was_changed_keeps_what_is_there(
    farm: SiteProject, tmp_path: Path
) -> None:
    farm.driven = True
    before = (farm.root / "sites" / f"{SITE}.toml").read_text()
    jobs = farm.submit(2, gate=True)
    with farm.up():
        farm.wait(lambda: len(farm.ran()) == 2)
        farm.wait_state(State.RUNNING)
    farm.gate.touch()
    after = before.replace(str(farm.folder), str(tmp_path / "elsewhere"))
    (farm.root / "sites" / f"{SITE}.toml").write_text(after)
    with farm.up():
        moved = "is no longer at the site"
        farm.wait(lambda: moved in str(farm.site()["trouble"]), passing=1.0)
    assert {job.state for job in farm.jobs().values()} == {State.RUNNING}
    (farm.root / "sites" / f"{SITE}.toml").write_text(before)
    farm.finish()
    farm.exactly_once(jobs)


def test_a_site_whose_file_is_gone_for_a_while_keeps_what_is_there(farm: SiteProject) -> None:
    file = farm.root / "sites" / f"{SITE}.toml"
    jobs = farm.submit(2, gate=True)
    with farm.up():
        farm.wait(lambda: len(farm.ran()) == 2)
        farm.wait_state(State.RUNNING)
    file.rename(farm.root / "aside")
    farm.gate.touch()
    with farm.up():
        farm.wait(lambda: all(f"{SITE}.toml is gone" in farm.job(job).reason for job in jobs))
    assert {job.state for job in farm.jobs().values()} == {State.RUNNING}
    (farm.root / "aside").rename(file)
    farm.finish()
    farm.exactly_once(jobs)
