"""A site that asks for a one-time code: somebody types it once, and everything goes on."""

from __future__ import annotations

import pytest

from pilotage.job.model import State
from testbed.ssh import Sshd
from tests.rigs.project.command_line import CommandLine, by_ssh
from tests.rigs.project.terminal import typed

pytestmark = pytest.mark.slow


def test_a_code_is_typed_once(tmp_path, login: Sshd):
    desk = CommandLine(tmp_path / "project")
    desk.site("cluster", by_ssh(login, alias="code"))
    with desk.up():
        job = desk.submit("--site", "cluster", "--via", "sbatch", "--", "echo", "ran")
        desk.wait(lambda: state(desk) == "needs login")
        assert "pilotage site login cluster" in desk.run("site", "ls")
        desk.wait(lambda: "login" in desk.run("explain", str(job)))
        assert desk.job(job).state not in (State.RUNNING, State.FAILED)
        assert code(desk, login.code()) == 0
        desk.done(job)
        assert state(desk) == "connected"
        desk.stop()
        desk.start()
        desk.done(desk.submit("--site", "cluster", "--via", "sbatch", "--", "true"))
        # The connection went, and with it what the code had opened.
        login.kill_connections("code")
        late = desk.submit("--site", "cluster", "--via", "sbatch", "--", "echo", "late")
        desk.wait(lambda: state(desk) == "needs login")
        assert code(desk, "000000") != 0
        assert code(desk, login.code()) == 0
        desk.done(late)


def state(desk: CommandLine) -> str:
    [row] = desk.json("site", "ls")["sites"]
    return str(row["state"])


def code(desk: CommandLine, word: str) -> int:
    """Log in as a person does at a terminal."""
    argv = desk.argv("site", "login", "cluster", "--project", str(desk.root))
    answers = [("Password:", word)] if word != "000000" else [("Password:", word)] * 3
    status, _ = typed(argv, answers, desk.env)
    return status
