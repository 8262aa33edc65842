"""Two hubs share one agent at a real Slurm: both get pilots, and neither more than it may."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.slurm import Slurm
from tests.rigs.broker.shared_agent import Frontend, Shared

LIMITS = {"lab": 2, "group": 1}


@pytest.mark.slow
def test_two_hubs_share_an_agent_with_limits_for_each(tmp_path: Path, slurm: Slurm):
    # Each pool wants more than the agent gives its hub.
    hubs = {name: Frontend(tmp_path / name, maximum=4) for name in LIMITS}
    batch = {"batch": "slurm", "env": {"SLURM_CONF": slurm.env["SLURM_CONF"]}}
    agent = Shared(tmp_path / "agent", batch, env=slurm.env)
    jobs = {name: hub.queue(16, 0.5) for name, hub in hubs.items()}
    most = dict.fromkeys(LIMITS, 0)

    def within() -> None:
        for name, limit in LIMITS.items():
            have = agent.held(name).cores
            assert have <= limit
            most[name] = max(most[name], have)
            # What the hub has of pilots that came is what the agent gave it.
            assert hubs[name].states()["available"] <= limit

    def begun() -> bool:
        within()
        return all(hub.ran() for hub in hubs.values())

    def over() -> bool:
        within()
        return not agent.live() and all(
            hub.done(jobs[name]) and not hub.live() for name, hub in hubs.items()
        )

    try:
        for name, hub in hubs.items():
            hub.start()
            # Each calls the site by a name of its own.
            hub.pool(4, site=f"{name}-slurm")
            agent.dial(hub, maximum=LIMITS[name], theirs=f"{name}-slurm")
        agent.start()
        agent.wait(begun)
        # Whichever process dies, the rest goes on, and nothing is done twice.
        agent.kill()
        hubs["lab"].kill()
        hubs["lab"].start()
        agent.start()
        agent.wait(over)
    finally:
        agent.kill()
        for hub in hubs.values():
            hub.kill()
    assert most == LIMITS
    for name, hub in hubs.items():
        hub.exactly_once(jobs[name])
    agent.once()
    agent.wait(lambda: not slurm.run("squeue", "--noheader").strip())
