"""Killed with -9 on the way through a batch system, and started again: each job ran once."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.base import crash
from testbed.condor import Condor
from testbed.slurm import Slurm
from testbed.ssh import Sshd
from tests.rigs.cluster import batch_site
from tests.rigs.cluster.batch_site import SiteProject
from tests.suite import suites

pytestmark = pytest.mark.slow

#: Jobs at each point: a few pass all points, one after another, in one project; many have a
#: project of their own for each point, which takes half an hour in all.
FEW, MANY = 4, 200
#: Points that are passed only after doubt, and where the doubt comes from.
AFTER = {"site.fenced": "site.intent", "site.renewed": "site.prepared"}
#: Points that a submission passes, however many jobs it is for.
BY_SUBMISSION = ("site.before_intent", "site.intent", "site.prepared", "site.submitted",
                 "site.recorded", "site.fenced", "site.renewed")  # fmt: skip
#: Points that are passed with all that ended since the last passing, so perhaps only once.
BY_TURN = ("site.finished", "site.closed")
WRITE = "echo done > out.$0; mv out.$0 '{base}/out/'$0"
OUTPUT = {"out": "out/{job}"}


def kill_at(farm: SiteProject, point: str, count: int = FEW) -> list[int]:
    """Have it die there with work at hand; half of the jobs are submitted one by one."""
    single = farm.submit(count // 2, outputs=OUTPUT, more=WRITE, alone=True)
    jobs = single + farm.submit(count - len(single), outputs=OUTPUT, more=WRITE)
    nth = 1 if point in BY_TURN else count // 2
    if point in BY_SUBMISSION:
        nth = 2
    if before := AFTER.get(point):
        farm.dies(f"{before}:2")
        nth = 1
    farm.dies(f"{point}:{nth}")
    return jobs


def check(farm: SiteProject, jobs: list[int]) -> None:
    """Let it go on, and see that each job ran once and left its output, and nothing else."""
    farm.finish(120 + 3 * len(jobs))
    farm.exactly_once(jobs)
    assert {one.name for one in (farm.root / "out").iterdir()} == {str(job) for job in jobs}
    if left(farm):
        # It may have ended before the site had been told.
        with farm.up():
            deadline = time.monotonic() + batch_site.PATIENCE
            while left(farm) and time.monotonic() < deadline:
                time.sleep(0.1)
    assert left(farm) == []


def left(farm: SiteProject) -> list[Path]:
    """Name what is left at the site of what is over."""
    return [*farm.folder.glob("*/s/*"), *farm.folder.glob("*/news/*")]


@pytest.fixture
def shared(condor: Condor) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=condor.shared) as folder:
        yield Path(folder)


def on_slurm(root: Path, cluster: Slurm, count: int = FEW) -> SiteProject:
    return batch_site.on_slurm(root, cluster, f"array = {max(2, count // 8)}")


def on_condor(root: Path, place: Path, pool: Condor, sshd: Sshd, count: int = FEW) -> SiteProject:
    return batch_site.on_condor(root, place, pool, sshd, f"array = {max(2, count // 8)}")


@pytest.mark.quick
def test_slurm_at_one_point(tmp_path: Path, slurm: Slurm) -> None:
    farm = on_slurm(tmp_path / "p", slurm)
    check(farm, kill_at(farm, suites.one_of(crash.SITE)))


def test_slurm_at_every_point_in_turn(tmp_path: Path, slurm: Slurm) -> None:
    farm = on_slurm(tmp_path / "p", slurm)
    check(farm, [job for point in crash.SITE for job in kill_at(farm, point)])


def test_htcondor_by_ssh_at_some_points_in_turn(
    tmp_path: Path, shared: Path, condor: Condor, sshd: Sshd
) -> None:
    farm = on_condor(tmp_path / "p", shared, condor, sshd)
    points = ("site.prepared", "site.submitted", "site.home")
    check(farm, [job for point in points for job in kill_at(farm, point)])


@pytest.mark.soak
@pytest.mark.parametrize("point", crash.SITE)
def test_slurm(tmp_path: Path, slurm: Slurm, point: str) -> None:
    farm = on_slurm(tmp_path / "p", slurm, MANY)
    check(farm, kill_at(farm, point, MANY))


@pytest.mark.soak
@pytest.mark.parametrize("point", crash.SITE)
def test_htcondor_by_ssh(
    tmp_path: Path, shared: Path, condor: Condor, sshd: Sshd, point: str
) -> None:
    farm = on_condor(tmp_path / "p", shared, condor, sshd, MANY)
    check(farm, kill_at(farm, point, MANY))
