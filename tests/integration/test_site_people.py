"""People call jobs off, hold them and drain sites, at every moment of a job's way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pilotage.hub.project import Project
from pilotage.job.model import State
from tests import sites
from tests.misbehaving.double import Misbehaving
from tests.sites import SITE, Farm

pytestmark = pytest.mark.slow


@pytest.fixture
def double(tmp_path: Path) -> Iterator[Misbehaving]:
    with Misbehaving(tmp_path / "scheduler", scale=0.05) as scheduler:
        yield scheduler


@pytest.fixture
def farm(tmp_path: Path, double: Misbehaving) -> Farm:
    return sites.on_double(tmp_path / "p", double.bin)


Act = Callable[[Project], object]


def ask(what: str, job: int) -> Act:
    if what == "cancel":
        return lambda project: project.cancel([job])
    return lambda project: project.hold([job])


MEANS = {"cancel": State.CANCELLED, "hold": State.HELD}


@pytest.mark.parametrize("what", MEANS)
def test_while_the_site_cannot_be_reached(farm: Farm, double: Misbehaving, what: str) -> None:
    farm.settings(f'batch = "slurm"\npath = ["{double.bin}"]\npython = "/nowhere/python"\n')
    (job,) = farm.submit(1)
    with farm.up():
        farm.wait_state(State.STAGING_IN)
        farm.wait(lambda: "nowhere" in farm.job(job).reason)
        farm.change(ask(what, job))
        # It was never sent, but that is found out only there if there is an order of it.
        farm.settings(f'batch = "slurm"\npath = ["{double.bin}"]\n')
    with farm.up():
        farm.wait_state(MEANS[what])
    assert not farm.ran()
    assert double.accepted() == []


@pytest.mark.parametrize("what", MEANS)
def test_while_it_is_submitted(farm: Farm, double: Misbehaving, what: str) -> None:
    double.plan("sbatch", "slow")
    one, other = farm.submit(2)
    with farm.up():
        farm.wait(lambda: "sbatch slow" not in double.left())
        farm.change(ask(what, one))
        farm.wait_state(MEANS[what], jobs=[one])
        farm.wait_ended(other)
    assert farm.ran() == {other: 1}
    assert farm.job(other).state is State.DONE


@pytest.mark.parametrize("what", MEANS)
def test_while_it_runs(farm: Farm, what: str) -> None:
    one, other = farm.submit(2, gate=True)
    with farm.up():
        farm.wait(lambda: len(farm.ran()) == 2)
        farm.change(ask(what, one))
        farm.wait_state(MEANS[what], jobs=[one])
        farm.gate.touch()
        farm.wait_ended(other)
        if what == "hold":
            farm.change(lambda project: project.release([one]))
            farm.wait_ended(one)
    assert farm.ran() == {one: 2 if what == "hold" else 1, other: 1}


def test_after_a_restart_of_the_hub(farm: Farm) -> None:
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


def test_a_site_that_is_drained_finishes_what_it_has(farm: Farm) -> None:
    def drain(asked: str) -> None:
        with Project(farm.root) as project, project._change() as db:
            db.run("site_ask", name=SITE, asked=asked)

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


def test_a_site_whose_folder_was_changed_keeps_what_is_there(farm: Farm, tmp_path: Path) -> None:
    before = (farm.root / "sites" / f"{SITE}.toml").read_text()
    jobs = farm.submit(2, gate=True)
    with farm.up():
        farm.wait(lambda: len(farm.ran()) == 2)
        farm.wait_state(State.RUNNING)
    farm.gate.touch()
    after = before.replace(str(farm.folder), str(tmp_path / "elsewhere"))
    (farm.root / "sites" / f"{SITE}.toml").write_text(after)
    with farm.up():
        farm.wait(lambda: "is not at the site any more" in str(farm.site()["trouble"]))
    assert {job.state for job in farm.jobs().values()} == {State.RUNNING}
    (farm.root / "sites" / f"{SITE}.toml").write_text(before)
    farm.finish()
    farm.exactly_once(jobs)


def test_a_site_whose_file_is_gone_for_a_while_keeps_what_is_there(farm: Farm) -> None:
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
