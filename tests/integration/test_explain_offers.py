"""Explanations with the real hub and pilots, by the real commands."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from pilotage.base import text
from pilotage.job.model import State
from tests.rigs.node import real_hub
from tests.rigs.node.scripted_hub import Program, wait_for


class Shell:
    """A project, and commands in it."""

    def __init__(self, hub: real_hub.RealHub) -> None:
        self.hub = hub

    def __call__(self, *words: str, status: int = 0) -> str:
        command = [sys.executable, "-m", "pilotage", *words]
        done = subprocess.run(
            command, cwd=self.hub.root, capture_output=True, text=True, timeout=120, check=False,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(real_hub.SRC), "COLUMNS": "400"},
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def states(self) -> list[str]:
        return [row[3] for row in self.hub.project.db.rows("offer_pilots", since=0.0)]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with real_hub.running(tmp_path / "hub", more='[match]\npatience = "1s"\n') as hub:
        yield Shell(hub)


def enrol(shell: Shell, base: Path, *words: str) -> AbstractContextManager[Program]:
    return real_hub.enrolled(shell.hub, base, *words)


def test_a_hub_without_pilots_says_how_to_get_some(shell):
    assert "there are no pilots, and this machine runs no jobs" in shell("submit", "true")
    found = shell("explain", "1")
    assert "there is nothing that could run it" in found
    assert "pilotage token new enrol" in found
    assert "there are no pilots" in shell("status")
    assert "there are no pilots" in shell("job", "ls")


@pytest.mark.slow
def test_what_every_pilot_says_to_a_job_is_told(shell, tmp_path):
    with (
        enrol(shell, tmp_path / "a", "--cpus", "2", "--attribute", "rack=1"),
        enrol(shell, tmp_path / "b", "--cpus", "3", "--attribute", "rack=2"),
    ):
        wait_for(lambda: shell.states() == ["available"] * 2, 60)
        # Never: by a need, and by an attribute that none has.
        said = shell("submit", "--cpus", "64", "true")
        assert "it can never start on what is offered now: `cpus >= 64`: every offer fails" in said
        assert "ask for cpus ≤ 3 (1 offer would do then)" in said
        dry = shell(
            "submit", "-n", "--requirements", "rack == 7 and gpu == 'H100'", "true", status=5
        )
        assert "no offer has an attribute `gpu`" in dry
        assert "1 job like 1 can never start on what is offered now" in shell("status")
        # Not now: all cores are in use.
        full = [shell.hub.submit("sleep", "60") for _ in range(5)]
        wait_for(lambda: all(shell.hub.state(one) is State.RUNNING for one in full), 60)
        where = shell.hub.project.attempts(full[0])[-1].starter.removeprefix("pilot:")
        assert f"(pilot {where})" in shell("explain", str(full[0]))
        shell("submit", "--requirements", "rack == 2", "true")
        found = shell("explain", "last")
        assert "it fits nowhere now; 1 offer would do when it is free" in found
        assert "it needs cpus = 1, and none is free" in found
        assert "`rack == 2`: 1 of 2 offers fail; it has 1" in found
        assert "it needs cpus = 1, and none is free" in shell("job", "ls", "--state", "queued")
        assert "none is free" in shell("submit", "-n", "true")
        # Draining: what would do takes no more.
        for number in (1, 2):
            shell("pilot", "drain", str(number))
        wait_for(lambda: set(shell.states()) == {"draining"}, 60)
        shell("submit", "true")
        found = shell("explain", "last")
        assert "all offers that would do take no work now" in found
        assert "2 offers that would do take no more work: asked to drain by a person" in found


def test_a_place_is_kept_for_a_job_that_has_waited(shell, tmp_path):
    with enrol(shell, tmp_path / "a", "--cpus", "2"):
        wait_for(lambda: shell.states() == ["available"], 60)
        long = shell.hub.submit("sleep", "60")
        wait_for(lambda: shell.hub.state(long) is State.RUNNING, 60)
        shell("submit", "--cpus", "2", "true")
        # The hub looks at what waits when a place asks again.
        wait_for(lambda: _kept(shell), 60)
        found = shell("explain", "2")
        assert "pilot 1 is kept for it: there is room in about" in found
        assert "pilot 1 is kept for it" in shell("job", "ls", "--state", "queued")
        small = shell("submit", "true")
        assert "it cannot start now: 1 offer that would do keeps its room: for job 2" in small


def _kept(shell: Shell) -> bool:
    time.sleep(0.2)
    return bool(shell.hub.project.db.rows("reserved_all"))


def test_a_node_that_eats_jobs_and_a_silent_one_are_named(shell, tmp_path):
    with enrol(shell, tmp_path / "a", "--cpus", "2", "--attribute", "kind='x'"):
        wait_for(lambda: shell.states() == ["available"], 60)
        facts = {"host": "hole", "work": "/w", "cpus": 16, "memory": 2**34, "os": "linux"}
        with shell.hub.project.change() as db:
            for number, host in enumerate(("hole", "mute")):
                name = {"name": host, "site": "far", "pool": "", "digest": f"{number}"}
                body = text.dump({**facts, "host": host})
                db.value("pilot_add", **name, state="available", facts=body, now=time.time() - 600)
        shell("submit", "--cpus", "16", "true")
        told = (
            "1 offer that would do is kept from work: hole: 9 of 9 failed",
            "1 offer that would do is silent: the last report came 10 m",
        )
        wait_for(lambda: _says(shell, told), 60)


def _says(shell: Shell, told: tuple[str, ...]) -> bool:
    """Explain while an alarm is raised; the hub, which knows better, drops it within a second."""
    with shell.hub.project.change() as db:
        db.run("alarm_put", name="node gets no work: hole", words="9 of 9 failed", now=1.0)
    found = shell("explain", "1")
    return all(one in found for one in told)
