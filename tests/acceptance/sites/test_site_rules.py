"""Rules whose jobs run at a cluster that is reached by SSH."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.job.model import State
from testbed.slurm import Slurm
from testbed.ssh import Sshd
from tests.rigs.project.command_line import CommandLine, by_ssh

pytestmark = pytest.mark.slow

BOOK = """
[rule.sum]
files = "raw/*.txt"
site = "cluster"
run = "sbatch"
script = '''
echo "sums $PILOTAGE_STEM"
cat "$PILOTAGE_PATH" calibration/*.dat > "sums/$PILOTAGE_STEM.sum"
'''
cwd = "{base}"
inputs = ["calibration/*.dat"]
outputs = {sum = "sums/{stem}.sum"}

[rule.count]
files = "sums/*.sum"
run = ["sh", "-c", "wc -l < {path} > counts/{stem}.n"]
cwd = "{base}"
outputs = {n = "counts/{stem}.n"}

[rule.sweep]
files = "cards/*.in"
site = "cluster"
via = "sbatch"
run = ["sh", "-c", "cat {path} > points/{level}; echo {level} >> points/{level}"]
cwd = "{base}"
outputs = {point = "points/{level}"}
sweep = {level = {start = 1, stop = 50, step = 1}}

[rule.asleep]
files = "asleep/*"
site = "cluster"
via = "sbatch"
run = ["true"]
slurm = {extra = ["--hold"]}

[rule.again]
files = "again/*"
site = "cluster"
run = "sbatch"
script = '''
echo "attempt $PILOTAGE_ATTEMPT"
test "$PILOTAGE_ATTEMPT" = 2
'''
retry = {attempts = 3, delay = "0s"}
"""
#: Counts its calls, and is the real one.
COUNTS = '#!/bin/sh\necho call >> {log}\nexec /usr/bin/sbatch "$@"\n'


@pytest.fixture(scope="module")
def calls(login: Sshd) -> Path:
    """Have each call of `sbatch` leave a line."""
    log, program = login.user.home / "calls", login.user.home / "shim" / "sbatch"
    log.touch()
    os.chown(log, login.user.uid, login.user.gid)
    program.parent.mkdir()
    program.write_text(COUNTS.format(log=log))
    program.chmod(0o755)
    return log


@pytest.fixture(scope="module")
def desk(tmp_path_factory, login: Sshd, calls: Path) -> Iterator[CommandLine]:
    desk = CommandLine(tmp_path_factory.mktemp("rules") / "project", rules=BOOK)
    more = f'path = ["{calls.parent}/shim"]\nallow = ["--hold"]\n'
    desk.site("cluster", by_ssh(login, more=more))
    for folder in ("sums", "counts", "points", "raw", "cards", "asleep", "again"):
        (desk.root / folder).mkdir()
    desk.write("calibration/one.dat", "1\n")
    desk.write("calibration/two.dat", "2\n")
    with desk.up():
        yield desk


def listed(slurm: Slurm, number: str) -> str:
    """Say what Slurm says of a job; nothing if that is over."""
    return slurm.run("squeue", "--noheader", "--format=%T", f"--jobs={number}").strip()


def batch_id(text: str) -> str:
    """Find the number that Slurm gave to a job in what people read."""
    found = re.search(r"slurm job (\d+)", text)
    assert found, text
    return found[1]


def test_a_file_becomes_a_batch_job_whose_result_makes_the_next(desk: CommandLine):
    desk.write("raw/a.txt", "a\n")
    [job] = desk.made("sum")
    assert job.state is State.DONE, desk.told()
    assert desk.read("sums/a.sum") == "a\n1\n2\n"
    assert [one.state for one in desk.made("count")] == [State.DONE]
    assert desk.read("counts/a.n").strip() == "3"
    assert desk.run("logs", str(job.id)) == "sums a\n"
    told = desk.run("story", str(job.id))
    assert "cluster" in told
    assert batch_id(told)
    assert "cluster" in desk.run("job", "show", str(job.id))


def test_fifty_points_of_a_sweep_are_one_call(desk: CommandLine, calls: Path):
    before = len(calls.read_text().split())
    desk.write("cards/a.in", "card\n")
    jobs = desk.made("sweep", 50)
    assert {job.state for job in jobs} == {State.DONE}, desk.told()
    for level in range(1, 51):
        assert desk.read(f"points/{level}") == f"card\n{level}\n"
    assert len(calls.read_text().split()) == before + 1


def test_how_a_job_failed_is_told(desk: CommandLine):
    failing = desk.submit("--site", "cluster", "--via", "sbatch", "--", "sh", "-c",
                          "echo out; echo no such mineral >&2; exit 7")  # fmt: skip
    leaving = desk.submit("--site", "cluster", "--via", "sbatch", "--output", "never", "--", "true")
    lacking = desk.submit("--site", "cluster", "--via", "sbatch", "--input", "none.*", "--", "true")
    first, second, third = desk.ends(failing, leaving, lacking)
    assert {job.state for job in (first, second, third)} == {State.FAILED}
    assert "7" in first.reason
    assert "never" in second.reason
    assert "none.*" in third.reason
    assert desk.run("logs", str(failing), "--stderr") == "no such mineral\n"
    told = desk.run("explain", str(failing))
    assert "exit" in told
    assert "7" in told
    assert "no such mineral" in told


def test_what_failed_is_tried_again_there(desk: CommandLine):
    desk.write("again/a")
    [job] = desk.made("again")
    assert (job.state, job.attempt) == (State.DONE, 2)
    assert desk.run("logs", str(job.id)) == "attempt 2\n"
    assert desk.run("logs", str(job.id), "--attempt", "1") == "attempt 1\n"


def test_output_is_followed_while_it_is_written(desk: CommandLine, login: Sshd):
    gate = login.user.home / "gate"
    script = f"echo begins; while [ ! -e {gate} ]; do sleep 0.1; done; echo ends"
    job = desk.submit("--site", "cluster", "--via", "sbatch", "--", "sh", "-c", script)
    desk.becomes(job, State.RUNNING)
    with subprocess.Popen(desk.argv("logs", "--follow", str(job)), cwd=desk.root, env=desk.env,
                          stdout=subprocess.PIPE, text=True) as logs:  # fmt: skip
        assert logs.stdout is not None
        assert logs.stdout.readline() == "begins\n"
        assert desk.job(job).state is State.RUNNING
        gate.touch()
        assert logs.stdout.read() == "ends\n"
    desk.done(job)


def test_a_job_in_the_queue_says_so_and_is_called_off(desk: CommandLine, slurm: Slurm):
    desk.write("asleep/a")
    desk.wait(lambda: any(job.state is State.SUBMITTED for job in desk.jobs("asleep")))
    [job] = desk.jobs("asleep")
    desk.wait(lambda: "JobHeldUser" in desk.job(job.id).reason)
    told = desk.run("explain", str(job.id))
    assert "cluster" in told
    number = batch_id(told)
    assert "JobHeldUser" in told
    assert f"slurm job {number} at cluster" in desk.run("job", "ls", "--state", "submitted")
    [row] = desk.json("site", "ls")["sites"]
    assert (row["name"], row["state"]) == ("cluster", "connected")
    assert row["jobs"] == {"submitted": 1}
    assert listed(slurm, number) == "PENDING"
    desk.run("cancel", str(job.id))
    [ended] = desk.ends(job.id)
    assert ended.state is State.CANCELLED
    desk.wait(lambda: not listed(slurm, number))


def test_a_running_job_is_called_off(desk: CommandLine, slurm: Slurm):
    script = "echo begun; exec sleep 1000"
    job = desk.submit("--site", "cluster", "--via", "sbatch", "--", "sh", "-c", script)
    desk.becomes(job, State.RUNNING)
    number = batch_id(desk.run("story", str(job)))
    desk.run("cancel", str(job))
    [ended] = desk.ends(job)
    assert ended.state is State.CANCELLED
    desk.wait(lambda: listed(slurm, number) in ("", "COMPLETING"))
    assert "begun" in desk.run("logs", str(job))


def test_a_site_that_is_drained_gets_nothing_until_it_is_resumed(desk: CommandLine):
    desk.run("site", "drain", "cluster")
    [row] = desk.json("site", "ls")["sites"]
    assert row["drain"]["by"]
    assert row["state"] == "drained"
    try:
        job = desk.submit("--site", "cluster", "--via", "sbatch", "--", "true")
        desk.wait(lambda: "drain" in desk.run("explain", str(job)))
        assert desk.job(job).state is State.QUEUED
    finally:
        desk.run("site", "resume", "cluster")
    desk.done(job)


def test_a_hub_that_is_started_again_goes_on_where_it_was(
    desk: CommandLine, login: Sshd, calls: Path
):
    gate, ledger = login.user.home / "later", login.user.home / "ledger"
    ledger.touch()
    os.chown(ledger, login.user.uid, login.user.gid)
    desk.write("held.dat", "data\n")
    script = f"echo $0 >> {ledger}; while [ ! -e {gate} ]; do sleep 0.1; done; cp held.dat held.$0"
    words = ("--site", "cluster", "--via", "sbatch", "--input", "held.dat")
    jobs = [
        desk.submit(*words, "--output", f"held.{one}", "--", "sh", "-c", script, one)
        for one in ("a", "b")
    ]
    for job in jobs:
        desk.becomes(job, State.RUNNING)
    desk.kill()
    desk.start()
    third = desk.submit(*words, "--output", "held.c", "--", "sh", "-c", script, "c")
    desk.becomes(third, State.RUNNING)
    desk.stop()
    gate.touch()
    desk.wait(lambda: len(ledger.read_text().split()) == 3)
    desk.start()
    desk.done(*jobs, third)
    assert sorted(ledger.read_text().split()) == ["a", "b", "c"]
    assert [desk.read(f"held.{one}") for one in ("a", "b", "c")] == ["data\n"] * 3
