"""The command line as a user meets it: real processes in a real folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.suite import programs

SRC = str(Path(__file__).parents[2] / "src")
RULES = """
[rule.upper]
files = "in/*.txt"
script = '''
tr a-z A-Z < "$PILOTAGE_PATH" > "$PILOTAGE_PATH.up"
'''
outputs = { up = "{path}.up" }
"""


class Shell:
    """Runs commands in a project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        drop = ("PILOTAGE_", "PYTHONPATH")
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(drop)}
        self.env["PYTHONPATH"] = SRC

    def start(self, *words: str | bytes) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "pilotage", *words],
            cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def up(self) -> subprocess.Popen[bytes]:
        process, lock = self.start("up"), self.folder / ".pilotage/lock"
        programs.until_ready(
            process, lambda: lock.exists() and lock.read_text().endswith("ready"),
            process.communicate,
        )  # fmt: skip
        return process

    def run(self, *words: str | bytes, status: int = 0) -> tuple[str, str]:
        process = self.start(*words)
        out, err = said(process)
        assert process.returncode == status, (out, err)
        return out.decode("utf-8", "surrogateescape"), err.decode("utf-8", "surrogateescape")

    def json(self, *words: str, status: int = 0) -> dict[str, Any]:
        out, _ = self.run("--json", *words, status=status)
        assert out.count("\n") == 1
        found: dict[str, Any] = json.loads(out)
        assert found["schema"] == 1
        return found


def said(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Wait until a command has ended, and return what it wrote."""
    try:
        return process.communicate(timeout=programs.PATIENCE)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return made(tmp_path / "a project")


def made(folder: Path) -> Shell:
    """Make a project with one rule."""
    (folder / "rules").mkdir(parents=True)
    (folder / "in").mkdir()
    (folder / "pilotage.toml").touch()
    (folder / "rules/book.toml").write_text(RULES)
    return Shell(folder)


@contextmanager
def running(shell: Shell) -> Iterator[Shell]:
    """Have its project run."""
    process = shell.up()
    try:
        yield shell
    finally:
        process.send_signal(signal.SIGTERM)
        said(process)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running(made(tmp_path_factory.mktemp("cli") / "a project")) as shell:
        yield shell


@pytest.fixture
def served(hub: Shell) -> Shell:
    """Have a project that runs, which has jobs of other tests, too."""
    return Shell(hub.folder)


@pytest.fixture
def alone(shell: Shell) -> Iterator[Shell]:
    """Have a project that runs, with no jobs."""
    with running(shell):
        yield shell


def test_the_first_five_minutes(tmp_path):
    shell = Shell(tmp_path)
    out, _ = shell.run("init")
    assert "pilotage up" in out
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox/hi.txt").write_text("hello\n")
    _, err = shell.run("up", "--until-idle")
    assert "1 rule" in err
    assert "1 done" in err
    assert (tmp_path / "outbox/hi.txt").read_text() == "HELLO\n"
    out, _ = shell.run("status")
    assert "capitals" in out


def test_up_makes_a_project_where_there_is_none(tmp_path):
    shell = Shell(tmp_path)
    shell.run("up", "--until-idle")
    assert (tmp_path / "pilotage.toml").exists()


def test_odd_names_survive_from_event_to_answer(shell):
    odd = [b"a b\n\xff.txt", "naïve 'ü' $(x).txt".encode(), b"-n.txt"]
    for name in odd:
        Path(os.fsdecode(os.fsencode(shell.folder) + b"/in/" + name)).write_text("x")
    shell.run("up", "--until-idle")
    found = shell.json("job", "ls")["jobs"]
    assert {one["state"] for one in found} == {"done"}
    paths = {os.fsencode(one["path"]).rpartition(b"/")[2] for one in found}
    assert paths == set(odd)
    for selector in ("1", "2", "3"):
        out, _ = shell.run("story", selector)
        assert all(line.isprintable() for line in out.splitlines())
        shell.run("job", "show", selector)
    out, _ = shell.run("event", "ls")
    assert all(line.isprintable() for line in out.splitlines())


def test_submit_wait_passes_on_output_and_status(served):
    out, _ = served.run("submit", "--wait", "--", "sh", "-c", "echo hi; echo {x} $0", "zero")
    assert out == "hi\n{x} zero\n"
    script = "for i in $(seq 60); do echo line $i >&2; done; exit 3"
    _, err = served.run("submit", "--wait", "sh", "-c", script, status=1)
    assert "exited with code 3" in err
    assert "line 11\n" in err
    assert "line 10\n" not in err
    served.run("submit", "--wait", "--propagate", "sh", "-c", "exit 3", status=3)
    found = served.json("submit", "--wait", "true")
    assert (found["state"], found["attempts"][0]["exit"]) == ("done", 0)
    assert isinstance(found["attempts"][0]["wall"], float)
    assert isinstance(found["attempts"][0]["max_rss"], int)


def test_a_job_runs_where_it_was_submitted_with_what_was_asked(served, tmp_path):
    served.env["PILOTAGE_PROJECT"] = str(served.folder)
    served.folder = tmp_path / "elsewhere"
    served.folder.mkdir()
    served.env["COLOUR"] = "red"
    words = ("--env", "A=1", "--env", "COLOUR", "--output", "made", "--wait")
    out, _ = served.run("submit", *words, "sh", "-c", "pwd; echo $A $COLOUR; touch made")
    assert out == f"{served.folder}\n1 red\n"
    _, err = served.run("submit", "--output", "never", "--wait", "true", status=1)
    assert "never" in err


def test_a_slurm_script_runs_unchanged(served):
    (served.folder / "fit.sh").write_text(
        "#!/bin/bash\n#SBATCH -J fitted --mem=1G\n#SBATCH -o log.txt\necho from $0\n"
    )
    out, err = served.run("submit", "--wait", "fit.sh")
    assert out.startswith("from /")
    assert "`#SBATCH --output` is ignored" in err
    (found,) = served.json("job", "ls", "--name", "fitted")["jobs"]
    assert served.run("job", "ls", "-q", "--name", "fitted")[0] == f"{found['id']}\n"


def test_wait_dependencies_and_what_follows_a_failure(alone):
    alone.run("submit", "--name", "first", "sleep", "0.3")
    alone.run("submit", "--name", "second", "--after", "last", "true")
    alone.run("wait", "all", "--timeout", "60s")
    alone.run("submit", "--name", "bad", "false")
    alone.run("submit", "--name", "never", "--after", "bad", "true")
    found = alone.json("wait", "all", status=1)
    states = {one["name"]: one["state"] for one in found["jobs"]}
    assert states == {"first": "done", "second": "done", "bad": "failed", "never": "cancelled"}
    assert "exited with code 1" in alone.run("explain", "bad")[0]
    assert "job 3" in alone.run("explain", "never")[0]


def test_a_job_can_be_followed_and_called_off(served):
    script = "while :; do echo tick; sleep 0.05; done"
    served.run("submit", "--name", "clock", "sh", "-c", script)
    follow = served.start("logs", "-f", "clock")
    assert follow.stdout is not None
    assert follow.stdout.readline() == b"tick\n"
    assert "has been running" in served.run("explain", "clock")[0]
    served.run("cancel", "clock")
    said(follow)
    assert follow.returncode == 0
    assert served.json("job", "ls", "--name", "clock")["jobs"][0]["state"] == "cancelled"


def test_limits_hold_and_release(served):
    served.run("submit", "--limit", "camera", "--name", "one", "sleep", "600")
    served.run("submit", "--limit", "camera", "--name", "two", "true")
    deadline = time.monotonic() + 60
    while served.json("status")["jobs"]["running"] != 1:
        assert time.monotonic() < deadline
    assert "at most 1 with the key `camera`" in served.run("explain", "two")[0]
    served.run("hold", "one")
    served.run("wait", "two", "--timeout", "60s")
    served.run("wait", "one", "--timeout", "60s", status=1)
    assert [one["name"] for one in served.json("job", "ls", "--state", "held")["jobs"]] == ["one"]


def test_messages_reach_rules(served):
    book = '[rule.hear]\nmessage = "lab.*"\nrun = ["echo", "{message.sample}"]\n'
    file = served.folder / "hear.toml"
    file.write_text(book)
    assert "+ hear" in served.run("rule", "add", "hear.toml")[0]
    found = served.json("rule", "test", "--topic", "lab.x", "--data", '{"sample": 7}')
    assert found["rules"][0]["jobs"][0]["argv"] == ["echo", "7"]
    served.run("event", "emit", "lab.scan", "--data", '{"sample": 7}')
    deadline = time.monotonic() + 60
    while not served.json("job", "ls", "--name", "hear")["jobs"]:
        assert time.monotonic() < deadline
    served.run("wait", "hear")
    assert served.run("logs", "hear")[0] == "7\n"
    assert "message" in served.run("story", "hear")[0]
    assert "- hear" in served.run("rule", "rm", "hear.toml")[0]


def test_a_second_process_is_refused(served):
    _, err = served.run("up", status=7)
    assert "is run by process" in err


def test_rules_are_listed_tested_switched_and_drawn(shell):
    assert "in/*.txt" in shell.run("rule", "ls")[0]
    out, _ = shell.run("rule", "test", "--event", "in/a.csv")
    assert "does not match" in out
    shell.run("rule", "disable", "upper")
    (shell.folder / "in/a.txt").write_text("x")
    shell.run("up", "--until-idle")
    assert shell.json("job", "ls")["jobs"] == []
    shell.run("rule", "enable", "upper")
    shell.run("up", "--until-idle")
    assert len(shell.json("job", "ls")["jobs"]) == 1
    assert "upper" in shell.run("rule", "graph")[0]
    assert "flowchart" in shell.run("rule", "graph", "--mermaid")[0]
    shell.run("rule", "graph", "-o", "rules.svg")
    assert (shell.folder / "rules.svg").read_text().startswith("<svg")


def test_a_mistake_in_a_book_names_file_and_line(shell):
    (shell.folder / "rules/bad.toml").write_text('[rule.x]\nfile = "a"\nrun = ["true"]\n')
    _, err = shell.run("rule", "check", status=3)
    assert "bad.toml:2" in err
    assert "`files`" in err
    assert "bad.toml" in shell.run("rule", "ls")[1]


def test_a_failed_job_makes_until_idle_fail(shell):
    shell.run("submit", "false")
    _, err = shell.run("up", "--until-idle", status=1)
    assert "1 failed" in err


def test_interrupting_up_is_graceful(shell):
    process = shell.up()
    process.send_signal(signal.SIGINT)
    _, err = said(process)
    assert process.returncode == 130
    assert b"stopping" in err
    assert b"Traceback" not in err


def test_interrupting_a_wait_is_quiet(shell):
    shell.run("submit", "true")
    process = shell.start("wait", "all")
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = said(process)
    assert (process.returncode, err) == (130, b"\ninterrupted\n")


def test_a_reader_that_leaves_is_no_mistake(shell):
    for _ in range(3):
        shell.run("submit", "true")
    process = shell.start("job", "ls")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr as stderr:
        assert stderr.read() == b""
    assert programs.wait(process) in {0, 141}


def test_the_doctor_looks_at_everything(shell):
    found = shell.json("doctor")
    names = {one["name"] for one in found["checks"]}
    assert {"python", "sqlite", "store", "file system", "rules", "process", "clock"} <= names
    assert shell.run("doctor")[0].startswith("·")


def test_forgetting_asks_where_there_is_someone_to_ask(shell):
    shell.run("submit", "true")
    shell.run("up", "--until-idle")
    time.sleep(0.01)
    _, err = shell.run("job", "purge", "--older", "1ms", status=2)
    assert "--yes" in err
    assert shell.json("job", "purge", "--older", "1ms", "--yes")["purged"] == 1
    assert shell.json("job", "ls")["jobs"] == []
