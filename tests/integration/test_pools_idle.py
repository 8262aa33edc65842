"""A pool at zero: a job says that a pilot will come for it, and who waits for all sees it done."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from pilotage.hub import pool_view
from pilotage.hub.facts import Witness
from pilotage.hub.project import Project
from pilotage.job.model import State
from pilotage.match.explain import explain
from pilotage.match.facts import Explanation
from tests.pooled import Pooled

ASKED = 'pool == "burst"'


def pooled(root: Path, more: str = "", maximum: int = 2) -> Pooled:
    farm = Pooled(root)
    farm.add_site("here", 'batch = "local"\n')
    farm.add_pool("burst", "here", maximum, more=more)
    return farm


def why(farm: Pooled, job: int) -> Explanation:
    with Project(farm.root) as project:
        now = project.clock.now()
        witness = Witness(project.db, project.settings, now=now, running=True, root=project.root)
        return explain(witness.facts(job))


def said(found: Explanation) -> str:
    return "; ".join(f"{one.text}: {one.detail}" for one in found.reasons)


@pytest.mark.slow
def test_until_idle_runs_what_pools_can_and_leaves_nobody_behind(tmp_path: Path):
    farm = pooled(tmp_path / "p", "minimum = 1\n")
    jobs = farm.submit(6, more="sleep 0.2", site="", requirements=ASKED)
    farm.finish()
    farm.exactly_once(jobs)
    assert farm.drones()
    assert farm.live() == 0


@pytest.mark.slow
def test_until_idle_does_not_wait_for_a_pool_that_waits_for_a_person(tmp_path: Path):
    farm = pooled(tmp_path / "p")
    (job,) = farm.submit(1, site="", requirements=ASKED)
    farm.change(lambda one: pool_view.ask(one.db, one.root, "burst", pause=True))
    hub = farm.start("--until-idle")
    try:
        hub.wait(timeout=60)
    except subprocess.TimeoutExpired:
        raise AssertionError(farm.told()) from None
    finally:
        farm.kill()
    assert farm.job(job).state is State.QUEUED
    assert farm.drones() == []


@pytest.mark.slow
def test_a_drained_idle_pilot_is_gone_in_seconds(tmp_path: Path):
    """It would ask the hub for work for another heartbeat, if it were not told at once."""
    farm = pooled(tmp_path / "p", maximum=1)
    settings = farm.root / "pilotage.toml"
    settings.write_text(settings.read_text().replace('heartbeat = "2s"', 'heartbeat = "30s"'))
    jobs = farm.submit(2, more="sleep 0.2", site="", requirements=ASKED)
    with farm.up():
        farm.wait(lambda: all(farm.job(one).state is State.DONE for one in jobs))
        farm.wait(lambda: any(one.state == "draining" for one in farm.drones()) or not farm.live())
        begun = time.monotonic()
        farm.wait(lambda: not farm.live())
        # The long poll lasts for 20 s.
        assert time.monotonic() - begun < 15


# -- explain -------------------------------------------------------------------------------------


def test_explain_says_what_a_pool_will_do(tmp_path: Path):
    farm = pooled(tmp_path / "p")
    (job,) = farm.submit(1, site="", requirements=ASKED)
    found = why(farm, job)
    assert "waits for a pilot of a pool" in found.headline
    assert "pool burst: nobody has looked at it yet" in said(found)
    (far,) = farm.submit(1, site="", requirements='pool == "elsewhere"')
    assert "burst" not in said(why(farm, far))


def test_explain_says_why_a_pool_does_nothing(tmp_path: Path):
    farm = pooled(tmp_path / "p")
    (job,) = farm.submit(1, site="", requirements=ASKED)
    farm.change(lambda one: pool_view.ask(one.db, one.root, "burst", pause=True))
    found = why(farm, job)
    assert "waits for a pilot" not in found.headline
    assert "pool burst: paused by a person" in said(found)
    assert "pilotage pool resume burst" in found.suggestion


@pytest.mark.slow
def test_explain_follows_a_pool_from_nothing_to_its_limit(tmp_path: Path):
    farm = pooled(tmp_path / "p", "pending = 1\n", maximum=1)
    pool = farm.root / "pools" / "burst.toml"
    pool.write_text(pool.read_text().replace('patience = "1s"', 'patience = "10m"'))
    jobs = farm.submit(3, gate=True, site="", requirements=ASKED)
    with farm.up():
        farm.wait(lambda: "it orders a pilot once this has waited" in said(why(farm, jobs[-1])))
        pool.write_text(pool.read_text().replace('patience = "10m"', 'patience = "1s"'))
        farm.wait(lambda: farm.jobs()[jobs[0]].state is State.RUNNING)
        farm.wait(lambda: "as many cores as it may: 1" in said(why(farm, jobs[-1])))
        farm.gate.touch()
