"""Whatever ends a bed, nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed import detached, journal, processes
from testbed.errors import NotUp
from testbed.showroom import KINDS
from testbed.slurm import Slurm
from tests.suite import system

ROOT = Path(__file__).parent.parent.parent.parent

#: The programs that show that the packages of a kind are there.
NEEDS = {
    "slurm": ["slurmctld", "slurmd", "munged"],
    "slurm-accounting": ["slurmctld", "slurmd", "munged", "slurmdbd", "mariadbd"],
    "condor": ["condor root"],
    "gridengine": ["sge_qmaster", "sge_execd"],
    "sites": ["slurmctld", "slurmd", "munged", "sshd", "ip"],
    "rabbit": ["rabbitmq-server", "epmd"],
    "sshd": ["sshd"],
}

#: All but the lightest are for those who have time.
EACH = [pytest.param(kind, marks=[] if kind == "sshd" else pytest.mark.slow) for kind in KINDS]

OWNER = """\
import sys, time
from testbed.showroom import KINDS
with KINDS[sys.argv[1]]() as bed:
    if sys.argv[1] == "slurm":
        job = f"exec bash -c 'exec -a {bed.name} sleep 600'"
        bed.run("sbatch", "--output=/dev/null", "--wrap", job)
        while "R" not in bed.run("squeue", "--noheader", "--format=%t"):
            time.sleep(0.1)
    print(bed.name, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("kind", EACH)
def test_after_with(kind: str):
    system.needs("root", *NEEDS[kind])
    with KINDS[kind]() as bed:
        assert traces(bed.name)
    assert traces(bed.name) == []


@pytest.mark.slow
def test_after_a_start_that_failed(monkeypatch: pytest.MonkeyPatch):
    system.needs("root", *NEEDS["slurm"])
    cluster = Slurm()
    monkeypatch.setattr(cluster, "start_controller", lambda: cluster.run("false"))
    with pytest.raises(NotUp), cluster:
        pass
    assert traces(cluster.name) == []


@pytest.mark.parametrize("kind", EACH)
def test_after_the_death_of_the_owner(kind: str):
    system.needs("root", *NEEDS[kind])
    name = crash(kind)
    deadline = time.monotonic() + 60
    while left := traces(name):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


@pytest.mark.slow
def test_after_the_death_of_the_owner_and_the_warden():
    system.needs("root", *NEEDS["slurm"])
    name = crash("slurm", also_warden=True)
    assert traces(name)
    detached.down_left_over()
    assert traces(name) == []


def crash(kind: str, *, also_warden: bool = False) -> str:
    """Kill the owner of a bed, on which a job runs if it is Slurm; return the name of the bed."""
    command = [sys.executable, "-c", OWNER, kind]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        name = owner.stdout.readline().strip()
        if also_warden:
            os.kill(warden(name), signal.SIGKILL)
        owner.kill()
    return name


def warden(name: str) -> int:
    """Return the number of the warden of a bed."""
    read = journal.Journal(journal.FOLDER / f"{name}.journal").read()
    return next(processes.Process.parse(what).pid for kind, what in read if kind == "warden")


def traces(name: str) -> list[str]:
    """Return everything on this machine that bears the name of a bed."""
    token = name.rpartition("-")[2]
    processes_ = [str(each) for each in processes.marked(processes.MARK, name)]
    listed = [
        *Path("/proc/mounts").read_text().splitlines(),
        *Path("/etc/passwd").read_text().splitlines(),
        *Path("/etc/group").read_text().splitlines(),
        *subprocess.check_output(["ip", "-brief", "link"], text=True).splitlines(),
        *subprocess.check_output(["ps", "-e", "-o", "args"], text=True).splitlines(),
        *(str(path) for where in ("/run/netns", "/run/pilotage-testbed", "/etc/pam.d", "/tmp")
          for path in Path(where).glob("*")),
    ]  # fmt: skip
    return processes_ + [line for line in listed if token in line]
