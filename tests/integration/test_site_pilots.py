"""The hub is killed with -9 while it has pilots started: as many come as were asked for."""

from __future__ import annotations

import collections
import os
import signal
import subprocess
from pathlib import Path

import pytest

from pilotage.hub import fleet
from pilotage.pilot.model import State
from pilotage.site.wish import Wish
from testbed.ports import free_port
from testbed.slurm import Slurm
from tests import sites
from tests.sites import PATIENCE, SITE, Farm

#: With PILOTAGE_SITES each point is tried in a project of its own; without it a few pilots pass
#: all points, one after another, in one project.
MANY = "PILOTAGE_SITES" in os.environ
COUNT = 4 if MANY else 2
#: Pilots must find the hub where it was, whoever else runs one on this machine.
SETTINGS = '[hub]\nport = {port}\ntls = "on"\n[pilots]\nheartbeat = "1s"\nlease = "60s"\n'
#: Points that are passed only after doubt, and where the doubt comes from.
AFTER = {"site.fenced": "site.intent"}
POINTS = (
    "site.before_intent", "site.intent", "site.prepared", "site.submitted", "site.recorded",
    "site.fenced",
)  # fmt: skip


def dies(farm: Farm, crash: str) -> None:
    """Run until it kills itself at a point."""
    hub = farm.start(crash=crash)
    try:
        assert hub.wait(timeout=PATIENCE) == -signal.SIGKILL, farm.told()
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{crash} was not passed\n{farm.told()}") from None
    finally:
        farm.kill()


def states(farm: Farm) -> collections.Counter[str]:
    """Count all pilots that there ever were by their state; the machine of the hub is none."""
    found: list[fleet.Pilot] = []
    farm.change(lambda project: found.extend(fleet.pilots(project.db, site=SITE, ended=True)))
    return collections.Counter(one.state for one in found)


def running(slurm: Slurm) -> int:
    """Count what runs or waits at the cluster."""
    return len(slurm.run("squeue", "-h", "-r", "-t", "PD,R,CF,CG").splitlines())


def kill_at(farm: Farm, point: str, count: int) -> None:
    """Ask for pilots, and have the hub die on the way."""
    farm.change(lambda project: project.want_pilots(SITE, Wish(), count, ""))
    if before := AFTER.get(point):
        dies(farm, f"{before}:2")
    dies(farm, point)


def check(farm: Farm, slurm: Slurm, count: int) -> None:
    """Let the hub go on, and see that as many come as were asked for, and go."""
    with farm.up():
        farm.wait(lambda: states(farm) == {State.AVAILABLE: count})
        # A copy that was submitted in vain finds its claim taken, or is called off.
        farm.wait(lambda: running(slurm) == count)
        found: list[fleet.Pilot] = []
        farm.change(lambda project: found.extend(fleet.pilots(project.db, site=SITE)))
        farm.change(lambda project: project.ask_pilots([one.id for one in found], "stop"))
        farm.wait(lambda: states(farm) == {State.DOWN: count})
        farm.wait(lambda: running(slurm) == 0)
    assert len(found) == count


def on_slurm(root: Path, slurm: Slurm) -> Farm:
    farm = sites.on_slurm(root, slurm, f"array = {COUNT // 2}")
    (farm.root / "pilotage.toml").write_text(SETTINGS.format(port=free_port()))
    return farm


@pytest.mark.slow
def test_slurm_at_every_point_in_turn(tmp_path: Path, slurm: Slurm) -> None:
    farm = on_slurm(tmp_path / "p", slurm)
    for point in POINTS:
        kill_at(farm, point, COUNT)
    check(farm, slurm, COUNT * len(POINTS))


@pytest.mark.slow
@pytest.mark.skipif(not MANY, reason="takes minutes; PILOTAGE_SITES=200 has it run")
@pytest.mark.parametrize("point", POINTS)
def test_slurm(tmp_path: Path, slurm: Slurm, point: str) -> None:
    farm = on_slurm(tmp_path / "p", slurm)
    kill_at(farm, point, COUNT)
    check(farm, slurm, COUNT)
