"""A burst over two Slurm clusters and an HTCondor; the process that steers is killed five times."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.job.model import Resources
from testbed.condor import Condor
from testbed.slurm import Slurm
from testbed.ssh import Sshd
from tests.rigs.cluster.batch_site import slurm_site, ssh_site
from tests.rigs.cluster.pools import ANY, Condors, PoolProject, Slurms

#: PILOTAGE_POOLS=2000 has so many jobs; it takes some minutes.
COUNT = int(os.environ.get("PILOTAGE_POOLS", "400"))
PATIENCE = 120 + COUNT / 4
SMALL, LARGE = "cpus = 1", 'cpus = 2\nmemory = "1200M"'


@pytest.fixture
def shared(condor: Condor) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=condor.shared) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def project(
    root: Path, shared: Path, slurms: dict[str, Slurm], condor: Condor, sshd: Sshd
) -> PoolProject:
    """Make a project with three sites, each with two pools of two shapes."""
    farm = PoolProject(root, place=shared, user=sshd.user)
    for name, cluster in slurms.items():
        farm.add_site(name, slurm_site(cluster))
    path = condor.env["PATH"].split(os.pathsep)[0]
    farm.add_site("three", ssh_site(sshd, f'batch = "htcondor"\npath = ["{path}"]\n'))
    for name in (*slurms, "three"):
        farm.add_pool(f"{name}-small", name, 3, SMALL)
        farm.add_pool(f"{name}-large", name, 4, LARGE)
    return farm


@pytest.mark.slow
def test_a_burst_over_three_sites_though_its_hub_is_killed_five_times(
    tmp_path: Path, shared: Path, slurm: Slurm, slurm_accounting: Slurm, condor: Condor, sshd: Sshd,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    clusters = {"one": slurm, "two": slurm_accounting}
    farm = project(tmp_path / "p", shared, clusters, condor, sshd)
    beds = (Slurms(clusters), Condors(condor))
    small = farm.submit(COUNT * 3 // 4, more="sleep 0.2", site="", requirements=ANY)
    large = farm.submit(
        COUNT - len(small), more="sleep 0.4", site="", requirements=ANY,
        resources=Resources(cpus=2, memory=10**9),
    )  # fmt: skip
    jobs, began = small + large, time.monotonic()
    try:
        for point in ("site.submitted:1", "pool.acted:3"):
            hub = farm.start(crash=point)
            assert hub.wait(timeout=PATIENCE) == -signal.SIGKILL, farm.told()
        for moment in (
            lambda: farm.count()["available"] >= 3 and farm.ran(),
            lambda: farm.done() > COUNT / 2,
            # The first has been sent away; those without a job are gone at once.
            lambda: farm.done() > COUNT / 2 and farm.count().keys() & {"draining", "down"},
        ):
            farm.start()
            farm.wait(moment, PATIENCE)
            farm.kill()
        farm.start()
        farm.wait(lambda: not farm.live() and farm.done() == COUNT, PATIENCE)
        farm.wait(lambda: not any(bed.waiting() for bed in beds))
    finally:
        farm.kill()
    seconds = time.monotonic() - began
    farm.exactly_once(jobs)
    farm.never_too_many()
    farm.none_doubled([one for bed in beds for one in bed.ran()])
    pilots, account = farm.pilots(), farm.account()
    # Each came to its limit on the way.
    assert {pool: farm.most(pool) for pool in farm.maxima} == farm.maxima
    assert {one.state for one in pilots} == {"down"}
    assert 0 < account.used < account.held
    with capsys.disabled():
        sys.stdout.write(
            f"\n{COUNT} jobs by {len(pilots)} pilots in {seconds:.0f} s, killed five times:"
            f" used {account.used:.0f} of {account.held:.0f} core-seconds held,"
            f" {account.lost:.0f} in vain\n"
        )
