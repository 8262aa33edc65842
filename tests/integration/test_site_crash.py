"""Killed with -9 on the way through a batch system, and started again: each job ran once."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage import crash
from testbed.condor import Condor
from testbed.slurm import Slurm
from testbed.ssh import Sshd
from tests import sites
from tests.sites import Farm

#: PILOTAGE_SITES=200 tries every point with so many submissions; it takes an hour.
MANY = int(os.environ.get("PILOTAGE_SITES", "0"))
COUNT = MANY or 8
#: Points that are passed only after doubt, and where the doubt comes from.
AFTER = {"site.fenced": "site.intent", "site.renewed": "site.prepared"}
#: Points that a submission passes, however many jobs it is for.
BY_SUBMISSION = ("site.before_intent", "site.intent", "site.prepared", "site.submitted",
                 "site.recorded", "site.fenced", "site.renewed")  # fmt: skip
#: Points that are passed with all that ended since the last passing, so perhaps only once.
BY_TURN = ("site.finished", "site.closed")
WRITE = "echo done > out.$0; mv out.$0 '{base}/out/'$0"
OUTPUT = {"out": "out/{job}"}


def kill_and_restart(farm: Farm, point: str) -> None:
    """Half of the jobs are submitted one by one, the others as arrays."""
    single = farm.submit(COUNT // 2, outputs=OUTPUT, more=WRITE, alone=True)
    jobs = single + farm.submit(COUNT - len(single), outputs=OUTPUT, more=WRITE)
    nth = 1 if point in BY_TURN else COUNT // 2
    if point in BY_SUBMISSION:
        nth = 2
    if before := AFTER.get(point):
        farm.dies(f"{before}:2")
        nth = 1
    farm.dies(f"{point}:{nth}")
    farm.finish(120 + 3 * COUNT)
    farm.exactly_once(jobs)
    assert {one.name for one in (farm.root / "out").iterdir()} == {str(job) for job in jobs}
    if left(farm):
        # It may have ended before the site had been told.
        with farm.up():
            deadline = time.monotonic() + sites.PATIENCE
            while left(farm) and time.monotonic() < deadline:
                time.sleep(0.1)
    assert left(farm) == []


def left(farm: Farm) -> list[Path]:
    """Name what is left at the site of what is over."""
    return [*farm.folder.glob("*/s/*"), *farm.folder.glob("*/news/*")]


@pytest.fixture
def shared(condor: Condor) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=condor.shared) as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.parametrize("point", crash.SITE)
def test_slurm(tmp_path: Path, slurm: Slurm, point: str) -> None:
    kill_and_restart(sites.on_slurm(tmp_path / "p", slurm, f"array = {max(2, COUNT // 8)}"), point)


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", crash.SITE if MANY else ["site.prepared", "site.submitted", "site.fenced", "site.home"]
)
def test_htcondor_by_ssh(
    tmp_path: Path, shared: Path, condor: Condor, sshd: Sshd, point: str
) -> None:
    more = f"array = {max(2, COUNT // 8)}"
    kill_and_restart(sites.on_condor(tmp_path / "p", shared, condor, sshd, more), point)
