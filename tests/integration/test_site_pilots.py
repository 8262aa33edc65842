"""The hub is killed with -9 while it has pilots started: as many come as were asked for."""

from __future__ import annotations

import collections
import signal
import subprocess
from pathlib import Path

import pytest

from pilotage.hub import fleet
from pilotage.pilot.model import State
from pilotage.site.wish import Wish
from testbed.slurm import Slurm
from tests import sites
from tests.sites import PATIENCE, SITE, Farm

COUNT = 4
SETTINGS = '[hub]\ntls = "on"\n[pilots]\nheartbeat = "1s"\nlease = "60s"\n'
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


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_slurm(tmp_path: Path, slurm: Slurm, point: str) -> None:
    farm = sites.on_slurm(tmp_path / "p", slurm, f"array = {COUNT // 2}")
    (farm.root / "pilotage.toml").write_text(SETTINGS)
    farm.change(lambda project: project.want_pilots(SITE, Wish(), COUNT, ""))
    if before := AFTER.get(point):
        dies(farm, f"{before}:2")
    dies(farm, point)
    with farm.up():
        farm.wait(lambda: states(farm) == {State.AVAILABLE: COUNT})
        # A copy that was submitted in vain finds its claim taken, or is called off.
        farm.wait(lambda: running(slurm) == COUNT)
        ended: list[int] = []

        def stop() -> None:
            found: list[fleet.Pilot] = []
            farm.change(lambda project: found.extend(fleet.pilots(project.db, site=SITE)))
            ended.extend(one.id for one in found)
            farm.change(lambda project: project.ask_pilots(ended, "stop"))

        stop()
        farm.wait(lambda: states(farm) == {State.DOWN: COUNT})
        farm.wait(lambda: running(slurm) == 0)
    assert len(ended) == COUNT
