"""A scheduler that lies, hangs, forgets and repeats itself: each job still runs once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.batch.submission import LINGER_S
from pilotage.job.model import State
from tests.rigs.cluster import batch_site
from tests.rigs.cluster.batch_site import SiteProject
from tests.rigs.cluster.misbehaving import faults
from tests.rigs.cluster.misbehaving.double import Misbehaving

pytestmark = pytest.mark.slow


@pytest.fixture
def double(tmp_path: Path) -> Iterator[Misbehaving]:
    with Misbehaving(tmp_path / "scheduler", scale=0.02) as scheduler:
        yield scheduler


@pytest.fixture
def farm(tmp_path: Path, double: Misbehaving) -> SiteProject:
    return batch_site.on_double(tmp_path / "p", double.bin)


@pytest.mark.parametrize("alone", [True, False], ids=["jobs", "arrays"])
def test_every_fault_of_submitting(farm: SiteProject, double: Misbehaving, *, alone: bool) -> None:
    wrong = [fault for fault in faults.SUBMIT if fault != "refuse"]
    for fault in wrong:
        double.plan("sbatch", fault)
    count = len(wrong) if alone else 2 * len(wrong)
    if not alone:
        farm.settings('array = 2\nbatch = "slurm"\n' + f'path = ["{double.bin}"]\n')
    jobs = farm.submit(count, alone=alone)
    # What the scheduler has forgotten counts as gone after a while.
    farm.driven = True
    farm.finish(passing=1.0)
    farm.exactly_once(jobs)
    assert double.left() == []


def test_what_is_refused_for_ever_fails_in_the_scheduler_s_words(
    farm: SiteProject, double: Misbehaving
) -> None:
    double.plan("sbatch", "refuse", times=9)
    (job,) = farm.submit(1)
    with farm.up():
        farm.wait_ended(job)
    found = farm.job(job)
    assert found.state is State.FAILED
    assert "Invalid partition name" in found.reason
    assert found.attempt == 1
    assert len(double.calls("sbatch")) == 1
    assert not farm.ran()


def test_what_is_refused_for_now_waits_and_says_so(farm: SiteProject, double: Misbehaving) -> None:
    double.plan("sbatch", "error", times=3)
    (job,) = farm.submit(1)
    with farm.up():
        farm.wait(lambda: "Socket timed out" in farm.job(job).reason)
        farm.wait_ended(job)
    farm.exactly_once([job])
    assert len(double.calls("sbatch")) == 4


def test_every_fault_of_listing(farm: SiteProject, double: Misbehaving) -> None:
    running = farm.submit(2, gate=True)
    with farm.up():
        farm.wait(lambda: len(farm.ran()) == 2)
        for fault in faults.LIST:
            double.plan("squeue", fault)
            double.plan("sacct", fault)
        later = farm.submit(2, gate=True)
        farm.wait(lambda: not [one for one in double.left() if one.startswith("squeue")])
        farm.gate.touch()
        farm.wait_ended(*running, *later)
    farm.exactly_once([*running, *later])


def test_listings_without_what_runs_do_not_make_it_lost(
    farm: SiteProject, double: Misbehaving
) -> None:
    farm.driven = True
    running = farm.submit(2, gate=True)
    with farm.up():
        farm.wait(lambda: len(farm.ran()) == 2)
        double.plan("squeue", "empty", times=1000)
        # For longer than it takes to count as gone.
        listed(farm, double)
        farm.later(2 * LINGER_S)
        listed(farm, double)
        double.clear()
        farm.gate.touch()
        farm.wait_ended(*running)
    farm.exactly_once(running)


def listed(farm: SiteProject, double: Misbehaving) -> None:
    """Wait until what is out was listed some times more."""
    before = len(double.calls("squeue"))
    farm.wait(lambda: len(double.calls("squeue")) > before + 3)


def test_every_fault_of_calling_off(farm: SiteProject, double: Misbehaving) -> None:
    with farm.up():
        for fault in faults.CANCEL:
            call_off(farm, double, fault)


def call_off(farm: SiteProject, double: Misbehaving, fault: str) -> None:
    """Run a job and call it off, which goes wrong twice."""
    (job,) = farm.submit(1, gate=True)
    farm.wait(lambda: farm.ran()[job])
    double.plan("scancel", fault, times=2)
    farm.change(lambda project: project.cancel([job]))
    farm.wait_ended(job)
    assert farm.job(job).state is State.CANCELLED, fault
    assert farm.job(job).attempt == 1, fault
    double.clear()
