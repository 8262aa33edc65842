"""A pool at zero: a job says that a pilot will come for it, and who waits for all sees it done."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pilotage.hub.project import Project
from pilotage.job.model import State
from pilotage.match.explain import explain
from pilotage.match.facts import Explanation
from pilotage.pilot import view
from pilotage.pool import view as pool_view
from pilotage.status.explain import JobExplainer
from tests.rigs.cluster.batch_site import PATIENCE, SRC
from tests.rigs.cluster.pools import PoolProject

ASKED = 'pool == "burst"'


def pooled(root: Path, more: str = "", maximum: int = 2) -> PoolProject:
    farm = PoolProject(root)
    farm.add_site("here", 'batch = "local"\n')
    farm.add_pool("burst", "here", maximum, more=more)
    return farm


def why(farm: PoolProject, job: int) -> Explanation:
    with Project(farm.root) as project:
        now = project.clock.now()
        witness = JobExplainer(
            project.db, project.settings, now=now, running=True, root=project.root
        )
        return explain(witness.facts(job))


def said(found: Explanation) -> str:
    return "; ".join(f"{one.text}: {one.detail}" for one in found.reasons)


@pytest.mark.slow
def test_until_idle_runs_what_pools_can_and_leaves_nobody_behind(tmp_path: Path):
    farm = pooled(tmp_path / "p", "minimum = 1\n")
    jobs = farm.submit(6, more="sleep 0.2", site="", requirements=ASKED)
    farm.finish()
    farm.exactly_once(jobs)
    assert farm.pilots()
    assert farm.live() == 0


@pytest.mark.slow
def test_until_idle_does_not_wait_for_a_pool_that_waits_for_a_person(tmp_path: Path):
    farm = pooled(tmp_path / "p")
    (job,) = farm.submit(1, site="", requirements=ASKED)
    farm.change(lambda one: pool_view.ask(one.db, one.root, "burst", pause=True))
    hub = farm.start("--until-idle")
    try:
        hub.wait(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise AssertionError(farm.told()) from None
    finally:
        farm.kill()
    assert farm.job(job).state is State.QUEUED
    assert farm.pilots() == []


@pytest.mark.slow
def test_wait_says_that_a_pool_waits_for_a_person(tmp_path: Path):
    farm = pooled(tmp_path / "p")
    (job,) = farm.submit(1, site="", requirements=ASKED)
    farm.change(lambda one: pool_view.ask(one.db, one.root, "burst", pause=True))
    with farm.up():
        farm.wait(lambda: farm.look("burst").looked)
        said = _command(farm, "wait", str(job), "--timeout", "5s", check=False)
    assert f"job {job} waits: pool burst: paused by a person" in said


@pytest.mark.slow
def test_a_drained_idle_pilot_is_gone_in_seconds(tmp_path: Path):
    """It would ask the hub for work for another heartbeat, if it were not told at once."""
    farm = pooled(tmp_path / "p", maximum=1)
    settings = farm.root / "pilotage.toml"
    settings.write_text(settings.read_text().replace('heartbeat = "0.5s"', 'heartbeat = "30s"'))
    jobs = farm.submit(2, more="sleep 0.2", site="", requirements=ASKED)
    with farm.up():
        farm.wait(lambda: all(farm.job(one).state is State.DONE for one in jobs))
        farm.wait(lambda: any(one.state == "draining" for one in farm.pilots()) or not farm.live())
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
    assert "pool burst: it has not been checked yet" in said(found)
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
    # The first pilot does not wait for that.
    pool.write_text(pool.read_text().replace('patience = "0.5s"', 'patience = "10m"'))
    jobs = farm.submit(3, gate=True, site="", requirements=ASKED)
    assert "it has not been checked yet" in said(why(farm, jobs[-1]))
    with farm.up():
        farm.wait(lambda: farm.jobs()[jobs[0]].state is State.RUNNING)
        farm.wait(lambda: "as many cores as it may: 1" in said(why(farm, jobs[-1])))
        farm.gate.touch()


@pytest.mark.slow
def test_pilots_leave_a_site_that_their_pool_has_left(tmp_path: Path):
    farm = pooled(tmp_path / "p", "minimum = 1\n")
    farm.add_site("there", 'batch = "local"\n')

    def at(site: str) -> list[str]:
        return [one.state for one in farm.pilots() if one.site == site and one.live]

    with farm.up():
        farm.wait(lambda: "available" in at("here"))
        farm.add_pool("burst", "there", 2, more="minimum = 1\n")
        farm.wait(lambda: not at("here"))
        farm.wait(lambda: "available" in at("there"))


# -- smaller at once -----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_person_shrinks_a_pool_and_what_runs_is_ended_only_if_that_is_said(tmp_path: Path):
    farm = pooled(tmp_path / "p")
    jobs = farm.submit(2, gate=True, site="", requirements=ASKED)
    with farm.up():
        farm.wait(lambda: all(farm.job(one).state is State.RUNNING for one in jobs))
        # The store hears every few seconds of who runs what.
        farm.wait(lambda: all(running for running in _running(farm)))
        _command(farm, "pool", "shrink", "burst", "1")
        farm.wait(lambda: farm.count()["draining"] == 1)
        assert all(farm.job(one).state is State.RUNNING for one in jobs)
        refused = _command(farm, "pool", "shrink", "burst", "--kill", check=False)
        assert "--yes" in refused
        _command(farm, "pool", "shrink", "burst", "--kill", "--yes")
        farm.wait(lambda: not farm.live())
        assert {farm.job(one).state for one in jobs} == {State.QUEUED}
        assert farm.look("burst").state == "paused"
        _command(farm, "pool", "set", "burst", "--reset")
        _command(farm, "pool", "resume", "burst")
        farm.gate.touch()
        farm.wait(lambda: all(farm.job(one).state is State.DONE for one in jobs))
        assert {farm.job(one).attempt for one in jobs} == {2}


def _running(farm: PoolProject) -> list[int]:
    with Project(farm.root) as project:
        return [one.running for one in view.pilots(project.db) if one.pool]


def _command(farm: PoolProject, *words: str, check: bool = True) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pilotage", *words, "--project", str(farm.root)],
        env={**os.environ, "PYTHONPATH": str(SRC)}, capture_output=True, text=True, check=False,
        timeout=PATIENCE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stderr
    return done.stdout + done.stderr
