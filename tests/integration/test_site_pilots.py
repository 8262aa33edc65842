"""The hub is killed with -9 while it has pilots started: as many come as were asked for."""

from __future__ import annotations

import collections
import signal
import subprocess
from pathlib import Path

import pytest

from pilotage.batch.pilot_request import PilotRequest
from pilotage.pilot import view
from pilotage.pilot.model import PilotState
from testbed.ports import free_port
from testbed.slurm import Slurm
from tests.rigs.cluster import batch_site
from tests.rigs.cluster.batch_site import PATIENCE, SITE, SiteProject
from tests.suite import suites

#: Pilots at each point: a few pass all points, one after another, in one project; more of them
#: have a project of their own for each point.
FEW, MORE = 2, 4
#: Pilots must find the hub where it was, whoever else runs one on this machine.
SETTINGS = '[hub]\nport = {port}\ntls = "on"\n[pilots]\nheartbeat = "1s"\nlease = "60s"\n'
#: Points that are passed only after doubt, and where the doubt comes from.
AFTER = {"site.fenced": "site.intent"}
POINTS = (
    "site.before_intent", "site.intent", "site.prepared", "site.submitted", "site.recorded",
    "site.fenced",
)  # fmt: skip


def dies(farm: SiteProject, crash: str) -> None:
    """Run until it kills itself at a point."""
    hub = farm.start(crash=crash)
    try:
        assert hub.wait(timeout=PATIENCE) == -signal.SIGKILL, farm.told()
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{crash} was not passed\n{farm.told()}") from None
    finally:
        farm.kill()


def states(farm: SiteProject) -> collections.Counter[str]:
    """Count all pilots that there ever were by their state; the machine of the hub is none."""
    found: list[view.PilotView] = []
    farm.change(lambda project: found.extend(view.pilots(project.db, site=SITE, ended=True)))
    return collections.Counter(one.state for one in found)


def running(farm: SiteProject, slurm: Slurm) -> int:
    """Count what runs or waits at the cluster and is ours: another test may have left something."""
    folders = slurm.run("squeue", "-h", "-r", "-t", "PD,R,CF,CG", "-o", "%Z").splitlines()
    return sum(folder.startswith(str(farm.folder)) for folder in folders)


def kill_at(farm: SiteProject, point: str, count: int) -> None:
    """Ask for pilots, and have the hub die on the way."""
    farm.change(lambda project: project.want_pilots(SITE, PilotRequest(), count, ""))
    if before := AFTER.get(point):
        dies(farm, f"{before}:2")
    dies(farm, point)


def check(farm: SiteProject, slurm: Slurm, count: int) -> None:
    """Let the hub go on, and see that as many come as were asked for, and go."""
    with farm.up():
        farm.wait(lambda: states(farm) == {PilotState.AVAILABLE: count})
        # A copy that was submitted in vain finds its claim taken, or is called off.
        farm.wait(lambda: running(farm, slurm) == count)
        found: list[view.PilotView] = []
        farm.change(lambda project: found.extend(view.pilots(project.db, site=SITE)))
        farm.change(lambda project: project.ask_pilots([one.id for one in found], "stop"))
        farm.wait(lambda: states(farm) == {PilotState.DOWN: count})
        farm.wait(lambda: running(farm, slurm) == 0)
    assert len(found) == count


def on_slurm(root: Path, slurm: Slurm, count: int) -> SiteProject:
    farm = batch_site.on_slurm(root, slurm, f"array = {count // 2}")
    (farm.root / "pilotage.toml").write_text(SETTINGS.format(port=free_port()))
    return farm


@pytest.mark.quick
def test_slurm_at_one_point(tmp_path: Path, slurm: Slurm) -> None:
    farm = on_slurm(tmp_path / "p", slurm, FEW)
    kill_at(farm, suites.one_of(POINTS), FEW)
    check(farm, slurm, FEW)


@pytest.mark.slow
def test_slurm_at_every_point_in_turn(tmp_path: Path, slurm: Slurm) -> None:
    farm = on_slurm(tmp_path / "p", slurm, FEW)
    for point in POINTS:
        kill_at(farm, point, FEW)
    check(farm, slurm, FEW * len(POINTS))


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("point", POINTS)
def test_slurm(tmp_path: Path, slurm: Slurm, point: str) -> None:
    farm = on_slurm(tmp_path / "p", slurm, MORE)
    kill_at(farm, point, MORE)
    check(farm, slurm, MORE)
