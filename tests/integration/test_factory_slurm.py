"""Two hubs share one factory at a real Slurm: both get pilots, and neither more than it may."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.slurm import Slurm
from tests.factories import Frontend, Plant
from tests.sites import slurm_site

LIMITS = {"lab": 2, "group": 1}


@pytest.mark.slow
def test_two_hubs_share_a_factory_with_limits_for_each(tmp_path: Path, slurm: Slurm):
    # Each pool wants more than the factory gives its hub.
    hubs = {name: Frontend(tmp_path / name, maximum=4) for name in LIMITS}
    plant = Plant(tmp_path / "plant", slurm_site(slurm), env=slurm.env)
    jobs = {name: hub.queue(16, 0.5) for name, hub in hubs.items()}
    most = dict.fromkeys(LIMITS, 0)

    def within() -> None:
        for name, limit in LIMITS.items():
            have = plant.hub(name).cores
            assert have <= limit
            most[name] = max(most[name], have)
            # What the hub has of pilots that came is what the factory gave it.
            assert hubs[name].states()["available"] <= limit

    def begun() -> bool:
        within()
        return all(hub.ran() for hub in hubs.values())

    def over() -> bool:
        within()
        return not plant.guests() and all(
            hub.done(jobs[name]) and not hub.live() for name, hub in hubs.items()
        )

    try:
        for name, hub in hubs.items():
            hub.start()
            plant.feed(hub, maximum=LIMITS[name])
        plant.start()
        plant.wait(begun)
        # Whoever dies, the rest goes on, and nothing is done twice.
        plant.kill()
        hubs["lab"].kill()
        hubs["lab"].start()
        plant.start()
        plant.wait(over)
    finally:
        plant.kill()
        for hub in hubs.values():
            hub.kill()
    assert most == LIMITS
    for name, hub in hubs.items():
        hub.exactly_once(jobs[name])
    assert len(plant.submitted()) == len(set(plant.submitted()))
    plant.wait(lambda: not slurm.run("squeue", "--noheader").strip())
