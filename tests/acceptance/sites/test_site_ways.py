"""How a job may run at a site: as a batch job, as a step, on the login node; and what it asks."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from pilotage.job.model import State
from testbed.slurm import Slurm
from testbed.ssh import Sshd
from tests.rigs.project.command_line import CommandLine, by_ssh

pytestmark = pytest.mark.slow

#: Says as what it runs.
WHO = "script = '''\necho \"job $SLURM_JOB_ID step $SLURM_STEP_ID as $(id -un)\"\n'''\n"
BOOK = f"""
[rule.step]
files = "step/*"
site = "cluster"
run = "srun"
{WHO}
[rule.here]
files = "here/*"
site = "cluster"
run = "direct"
{WHO}
[rule.own]
files = "own/*"
site = "cluster"
via = "batch"
{WHO}
[rule.tasks]
files = "tasks/*"
site = "cluster"
via = "sbatch"
run = ["sh", "-c", "echo task $SLURM_PROCID on $(hostname)"]
slurm = {{nodes = 2, tasks = 3, launcher = "srun"}}

[rule.partition]
files = "wrong/*"
site = "cluster"
via = "sbatch"
run = ["true"]
slurm = {{partition = "no-such"}}

[rule.constraint]
files = "wrong/*"
site = "cluster"
via = "sbatch"
run = ["true"]
slurm = {{constraint = "no-such"}}

[rule.wrong_step]
files = "wrong/*"
site = "cluster"
via = "srun"
run = ["true"]
slurm = {{partition = "no-such"}}

[rule.extra]
files = "wrong/*"
site = "cluster"
via = "sbatch"
run = ["true"]
batch = {{extra = ["--nice=7"]}}

[rule.denied]
files = "wrong/*"
site = "cluster"
via = "sbatch"
run = ["true"]
batch = {{extra = ["--mail-user=x@example.org"]}}

[rule.memory]
files = "wrong/*"
site = "cluster"
via = "sbatch"
run = ["/usr/bin/python3", "-c", "x = bytearray(600_000_000); print(len(x))"]
memory = "100M"

[rule.time]
files = "wrong/*"
site = "cluster"
via = "sbatch"
run = ["sleep", "100"]
time = "2s"
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory, login: Sshd) -> Iterator[CommandLine]:
    desk = CommandLine(tmp_path_factory.mktemp("ways") / "project", rules=BOOK)
    desk.site("cluster", by_ssh(login, more='allow = ["--nice"]\n'))
    for folder in ("step", "here", "own", "tasks", "wrong"):
        (desk.root / folder).mkdir()
    with desk.up():
        yield desk


def output(desk: CommandLine, rule: str) -> str:
    """Let a rule fire, and return what its job wrote."""
    desk.write(f"{rule}/a")
    [job] = desk.made(rule)
    assert job.state is State.DONE, f"{job.reason}{desk.said}"
    return desk.run("logs", str(job.id))


def test_a_step_is_a_job_of_the_batch_system(desk: CommandLine, login: Sshd):
    assert re.fullmatch(rf"job \d+ step 0 as {login.user.name}\n", output(desk, "step"))


def test_a_direct_job_is_none_of_the_batch_system(desk: CommandLine, login: Sshd):
    assert output(desk, "here") == f"job  step  as {login.user.name}\n"


def test_batch_and_sbatch_are_the_same(desk: CommandLine, login: Sshd):
    assert re.fullmatch(rf"job \d+ step (batch|\d*) as {login.user.name}\n", output(desk, "own"))


def test_tasks_of_a_parallel_job_are_started_on_its_nodes(desk: CommandLine):
    lines = output(desk, "tasks").splitlines()
    assert sorted(line.split()[1] for line in lines) == list("012345")
    assert len({line.split()[-1] for line in lines}) <= 2


def test_what_goes_wrong_is_told_in_the_words_of_who_says_it(desk: CommandLine, slurm: Slurm):
    desk.write("wrong/a")
    reasons = {}
    for rule in ("partition", "constraint", "wrong_step", "extra", "denied", "memory", "time"):
        [job] = desk.made(rule)
        reasons[rule] = (job.state, job.reason)
    assert reasons.pop("extra")[0] is State.DONE
    assert {state for state, _ in reasons.values()} == {State.FAILED}, reasons
    words = {rule: said for rule, (_, said) in reasons.items()}
    assert "artition" in words["partition"]
    assert "feature" in words["constraint"]
    assert "artition" in words["wrong_step"]
    assert "does not allow" in words["denied"]
    assert "memory" in words["memory"]
    assert "time" in words["time"] or "2 s" in words["time"]


def test_a_program_of_the_project_comes_along(desk: CommandLine):
    """As the manual has it: `--input in.dat --output out.dat -- ./fit in.dat out.dat`."""
    desk.write("fit", '#!/bin/sh\ntr a-z A-Z < "$1" > "$2"\n').chmod(0o755)
    desk.write("in.dat", "data\n")
    words = ("--input", "in.dat", "--output", "out.dat", "--", "./fit", "in.dat", "out.dat")
    desk.done(desk.submit("--site", "cluster", "--via", "sbatch", *words))
    assert desk.read("out.dat") == "DATA\n"


def test_a_program_need_be_at_the_site_alone(desk: CommandLine):
    [job] = desk.ends(desk.submit("--site", "cluster", "--via", "sbatch", "--", "only-there", "x"))
    assert job.state is State.FAILED
    assert "only-there" in job.reason
