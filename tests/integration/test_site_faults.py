"""What befalls a site: it is waited for and told of, and each job runs once or is tried again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.hub.project import Project
from pilotage.job.model import Allocation, Resources, State
from testbed.slurm import Slurm
from testbed.ssh import Sshd
from tests.rigs.cluster import batch_site
from tests.rigs.cluster.batch_site import SiteProject
from tests.suite import programs

pytestmark = pytest.mark.slow
#: A command that waits before it does something, and after that.
SLOW = """#!/bin/sh
PATH=${{PATH#*:}}
[ ! -e {place}/slow ] || touch {place}/{name}.called
while [ -e {place}/slow ]; do sleep 0.1; done
{name} "$@"; code=$?
while [ -e {place}/late ]; do touch {place}/{name}.done; sleep 0.1; done
exit $code
"""


@pytest.fixture
def farm(tmp_path: Path, slurm: Slurm) -> SiteProject:
    made = batch_site.on_slurm(tmp_path / "p", slurm, 'allow = ["--nodelist", "--hold"]\n')
    made.driven = True
    return made


def test_the_controller_is_away_for_a_while(farm: SiteProject, slurm: Slurm) -> None:
    running = farm.submit(2, gate=True)
    with farm.up():
        farm.wait(lambda: len(farm.ran()) == 2)
        slurm.stop_controller()
        try:
            later = farm.submit(2)
            farm.wait(lambda: all("ontact" in farm.job(job).reason for job in later))
            farm.wait(lambda: "Unable to contact slurm controller" in str(farm.site()["trouble"]))
            farm.gate.touch()
            farm.wait_ended(*running)
        finally:
            slurm.start_controller()
        farm.wait_ended(*later)
    farm.exactly_once([*running, *later])


def test_called_off_from_outside(farm: SiteProject, slurm: Slurm) -> None:
    (job,) = farm.submit(1, gate=True)
    with farm.up():
        farm.wait(farm.ran)
        slurm.run("scancel", farm.batch_job(job))
        farm.wait_ended(job)
    found = farm.job(job)
    assert found.state is State.CANCELLED, farm.told()
    assert "cancelled at the batch system" in found.reason
    assert farm.ran() == {job: 1}


def test_held_and_called_off_there_before_it_began(farm: SiteProject, slurm: Slurm) -> None:
    held, gone = farm.submit(2, alone=True, allocation=Allocation(extra=("--hold",)))
    with farm.up():
        farm.wait(lambda: all("JobHeldUser" in farm.job(job).reason for job in (held, gone)))
        slurm.run("scancel", farm.batch_job(gone))
        slurm.run("scontrol", "release", farm.batch_job(held))
        farm.wait_ended(held, gone, passing=1.0)
    assert farm.job(held).state is State.DONE
    assert farm.job(gone).state is State.CANCELLED
    assert farm.ran() == {held: 1}


def test_an_administrator_requeues_it(farm: SiteProject, slurm: Slurm) -> None:
    (job,) = farm.submit(1, gate=True)
    with farm.up():
        farm.wait(farm.ran)
        number = farm.batch_job(job)
        subprocess.run(
            ["scontrol", "requeue", number], env={**os.environ, **slurm.env}, check=False
        )
        farm.gate.touch()
        farm.wait_ended(job)
    assert farm.job(job).state is State.DONE, farm.told()
    assert farm.ran() == {job: 1}


def test_its_node_fails(farm: SiteProject, slurm: Slurm) -> None:
    # The one test that waits as long as the product does.
    farm.driven = False
    (job,) = farm.submit(1, gate=True)
    with farm.up():
        farm.wait(farm.ran)
        node = slurm.run("squeue", "--noheader", "--format=%N", "--states=R").split()[0]
        slurm.fail_node(node)
        try:
            farm.wait(lambda: farm.job(job).attempt == 2)
            farm.gate.touch()
            farm.wait_ended(job)
        finally:
            slurm.restore_node(node)
    assert farm.job(job).state is State.DONE
    assert farm.ran() == {job: 2}
    with Project(farm.root) as project:
        assert "its node failed" in project.attempts(job)[0].reason


def test_its_own_program_is_killed(farm: SiteProject) -> None:
    (job,) = farm.submit(1, gate=True)
    with farm.up():
        farm.wait(farm.ran)
        (claim,) = farm.folder.glob("*/s/*/0.claim/by.json")
        os.kill(json.loads(claim.read_text())["pid"], signal.SIGKILL)
        farm.wait(lambda: farm.job(job).attempt == 2 and farm.ran()[job] == 2, passing=1.0)
        farm.gate.touch()
        farm.wait_ended(job)
    assert farm.job(job).state is State.DONE


def test_it_uses_more_memory_than_it_asked_for(farm: SiteProject) -> None:
    greed = "exec python3 -c 'import time; hog = bytes(range(256)) * 2_000_000; time.sleep(60)'"
    (job,) = farm.submit(1, more=greed, resources=Resources(memory=100 << 20))
    with farm.up():
        farm.wait_ended(job)
    assert farm.job(job).state is State.FAILED
    assert "memory" in farm.job(job).reason
    assert farm.ran() == {job: 1}


@pytest.mark.soak  # Slurm looks at wall time once in half a minute
def test_it_uses_up_the_wall_time(tmp_path: Path, slurm: Slurm) -> None:
    farm = batch_site.on_slurm(tmp_path / "p", slurm, '[defaults]\ntime = "1m"\n')
    (job,) = farm.submit(1, gate=True)
    with farm.up():
        farm.wait_ended(job)
    assert farm.job(job).state is State.FAILED
    assert "used up its wall time" in farm.job(job).reason
    assert farm.ran() == {job: 1}


def test_the_hub_goes_and_comes_back(farm: SiteProject) -> None:
    jobs = farm.submit(4, gate=True, more="echo $0 > '{base}/out/'$0", outputs={"o": "out/{job}"})
    hub = farm.start()
    try:
        farm.wait(lambda: len(farm.ran()) == 4)
        farm.wait_state(State.RUNNING)
        programs.end(hub)
    finally:
        farm.kill()
    assert {job.state for job in farm.jobs().values()} == {State.RUNNING}
    farm.gate.touch()
    farm.finish()
    farm.exactly_once(jobs)
    assert sorted(int(one.read_text()) for one in (farm.root / "out").iterdir()) == jobs


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Make a disk of sixteen megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16M", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "rubbish").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            return


def test_the_disk_there_is_full(farm: SiteProject, slurm: Slurm, small: Path) -> None:
    farm.settings(batch_site.slurm_site(slurm), folder=str(small))
    running = farm.submit(2, gate=True)
    with farm.up():
        farm.wait(lambda: len(farm.ran()) == 2)
        fill(small)
        later = farm.submit(1)
        # These end, and cannot say so.
        farm.gate.touch()
        farm.wait(lambda: "No space left" in farm.job(later[0]).reason)
        farm.wait(lambda: "No space left" in str(farm.site()["trouble"]))
        assert {farm.job(job).state for job in running} == {State.RUNNING}
        (small / "rubbish").unlink()
        farm.wait_ended(*running, *later)
    farm.exactly_once([*running, *later])


@pytest.fixture
def far(tmp_path: Path, slurm: Slurm, sshd: Sshd) -> Iterator[SiteProject]:
    """Reach Slurm by SSH; its submit command waits before and after."""
    # Nobody else sees the folders that pytest makes.
    with tempfile.TemporaryDirectory() as folder:
        place, tools = Path(folder, "place"), Path(folder, "tools")
        for one in (place, tools):
            one.mkdir()
        Path(folder).chmod(0o755)
        for name in ("sbatch", "squeue"):
            (tools / name).write_text(SLOW.format(place=place, name=name))
            (tools / name).chmod(0o755)
        site = batch_site.ssh_site(sshd, batch_site.slurm_site(slurm, f'path = ["{tools}"]'))
        yield SiteProject(tmp_path / "p", site, place=place, user=sshd.user)


def cut(farm: SiteProject, sshd: Sshd, what: str) -> None:
    """Cut the connection, or kill the program at its other end."""
    if what == "connection":
        sshd.kill_connections()
        return
    facts = json.loads(str(farm.site()["facts"]))
    with contextlib.suppress(ProcessLookupError):
        os.kill(facts["hello"]["pid"], signal.SIGKILL)


@pytest.mark.parametrize("what", ["connection", "hand", "hub"])
def test_the_way_there_is_cut_while_it_is_submitted(
    far: SiteProject, sshd: Sshd, what: str
) -> None:
    far.start()
    try:
        jobs = [*submit_and_cut(far, sshd, "slow", what), *submit_and_cut(far, sshd, "late", what)]
    finally:
        far.kill()
    far.exactly_once(jobs)


def submit_and_cut(far: SiteProject, sshd: Sshd, when: str, what: str) -> list[int]:
    """Cut the way before the submit command does something, or after that."""
    far.wait(lambda: far.site()["seen"] and not far.site()["trouble"])
    (far.place / when).touch()
    jobs = [*far.submit(2), *far.submit(1, priority=5)]
    far.wait((far.place / f"sbatch.{'called' if when == 'slow' else 'done'}").exists)
    if what == "hub":
        far.kill()
        far.start()
    else:
        cut(far, sshd, what)
    (far.place / when).unlink()
    far.wait_ended(*jobs)
    return jobs


def test_the_way_there_is_cut_again_and_again(far: SiteProject, sshd: Sshd) -> None:
    jobs = [*far.submit(6, alone=True), *far.submit(10)]
    with far.up():
        for turn in range(6):
            far.wait(lambda: far.site()["seen"] and not far.site()["trouble"])
            time.sleep(0.3 * turn)
            cut(far, sshd, ("connection", "hand")[turn % 2])
        far.wait_ended(*jobs)
    far.exactly_once(jobs)
