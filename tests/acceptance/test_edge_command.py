"""`pilotage agent`: as the administrator of a site uses them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pilotage.job.model import State
from testbed.ports import free_port
from testbed.rabbit import Rabbit
from tests.rigs.broker import edge_agent
from tests.rigs.broker.edge_agent import AGENT, SRC
from tests.rigs.node import real_hub
from tests.rigs.node.real_hub import enrolled

PATIENCE = 120.0


def run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pilotage", *words]
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    return subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=PATIENCE, check=False, env=env
    )


def answer(root: Path, *words: str, status: int = 0) -> Any:
    found = run(root, *words, "--json")
    assert found.returncode == status, found.stderr + found.stdout
    return json.loads(found.stdout)


@pytest.fixture
def made(tmp_path: Path, rabbit: Rabbit) -> Path:
    """Set an agent up by nothing but commands."""
    certificate, key = rabbit.papers[AGENT]
    exposed = tmp_path / "site"
    words = (
        "--url", rabbit.url, "--batch", "local", "--ca", str(rabbit.authority.certificate),
        "--certificate", str(certificate), "--key", str(key), "--user", AGENT, "--admin", "hub",
    )  # fmt: skip
    exposed.mkdir()
    assert answer(exposed, "agent", "setup", "mira", *words)["site"] == "mira"
    return exposed


def test_a_site_is_set_up_by_commands(made: Path):
    added = answer(made, "app", "add", "hello", shutil.which("true") or "")
    assert added["app"] == "hello"
    assert [one["state"] for one in answer(made, "app", "ls")["apps"]] == ["ready"]
    again = run(made, "agent", "setup", "mira", "--url", "amqps://b/", "--batch", "local")
    assert again.returncode != 0
    assert "exists already" in again.stderr
    nobody = run(made, "agent", "status")
    assert nobody.returncode != 0
    assert "`pilotage agent run`" in nobody.stderr


def test_mistakes_in_a_new_agent_are_told_before_anything_is_written(tmp_path: Path):
    for name, url, batch, words in (
        ("mira", "http://b/", "local", "amqps://"),
        ("local", "amqps://b/", "local", "cannot be the name"),
        ("mira", "amqps://b/", "slrum", "slrum"),
    ):
        found = run(tmp_path, "agent", "setup", name, "--url", url, "--batch", batch)
        assert found.returncode != 0
        assert words in found.stderr
    assert not (tmp_path / "agent.toml").exists()


def test_where_nothing_is_set_up_the_way_to_an_agent_is_told(tmp_path: Path):
    found = run(tmp_path, "agent", "run")
    assert found.returncode != 0
    assert "`pilotage agent setup`" in found.stderr


def test_a_unit_for_systemd(made: Path):
    source = answer(made, "agent", "unit")["unit"]
    assert f'agent run "{made}"' in source
    assert "Type=notify" in source


@pytest.mark.slow
def test_status_and_draining(tmp_path: Path, rabbit: Rabbit):
    with edge_agent.at_local(tmp_path / "e", rabbit) as edge:
        edge.start()
        key = edge.post("count")
        edge.wait_ended(key)
        edge.wait(lambda: answer(edge.root, "agent", "status")["agent"]["state"] == "well")
        shown = run(edge.root, "agent", "status").stdout
        for words in (f"agent of {edge.site}", "well", "1 done", "local: answers", " left"):
            assert words in shown
        answer(edge.root, "agent", "drain")
        edge.wait(lambda: answer(edge.root, "agent", "status")["agent"]["state"] == "drained")
        edge.wait(lambda: edge.heard("heartbeat")[-1]["draining"])
        left = edge.post("count")
        edge.wait(lambda: edge.admin.waiting(edge.queues[0]) == 1)
        assert edge.statuses(left) == []
        answer(edge.root, "agent", "resume")
        edge.wait_ended(left)
        assert [one["state"] for one in answer(edge.root, "job", "ls")["jobs"]] == ["done"] * 2
        assert "a message of" in run(edge.root, "job", "show", "1").stdout
        edge.kill()
        gone = answer(edge.root, "agent", "status", status=1)["agent"]
        assert (gone["state"], gone["running"]) == ("not running", False)


def test_a_batch_system_that_does_not_answer_is_told_before_there_is_a_job(
    tmp_path: Path, rabbit: Rabbit
):
    tools = tmp_path / "tools"
    tools.mkdir()
    squeue = tools / "squeue"
    squeue.write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n")
    squeue.chmod(0o755)
    batch = {"batch": "slurm", "path": [str(tools)]}
    with edge_agent.Edge(tmp_path / "e", rabbit, batch) as edge, edge.up():
        edge.wait(
            lambda: answer(edge.root, "agent", "status")["agent"]["state"] == "no batch system"
        )
        # The first heartbeat may be sent before the batch system was asked.
        edge.wait(lambda: "Unable to contact slurm controller" in scheduler(edge).get("text", ""))
        assert not scheduler(edge)["well"]


def scheduler(edge: edge_agent.Edge) -> dict[str, Any]:
    """Return the state of the batch system as the last heartbeat reports it."""
    found: dict[str, Any] = edge.heard("heartbeat")[-1]["scheduler"]
    return found


def test_pilots_reach_their_hub_through_the_agent(tmp_path: Path, rabbit: Rabbit):
    with real_hub.running(tmp_path / "hub", hub='tls = "on"') as hub:
        place = f"127.0.0.1:{free_port()}"
        relay = {"relay": {"hub": hub.url, "listen": place}}
        with (
            edge_agent.at_local(tmp_path / "e", rabbit, settings=relay) as edge,
            edge.up(),
            enrolled(hub, tmp_path / "p", "--link", f"relay:{place}"),
        ):
            job = hub.submit("sh", "-c", "echo hello")
            hub.wait(job)
            assert hub.state(job) is State.DONE
