"""`python -m testbed`, as a person at a terminal uses it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from testbed.showroom import READY
from tests.suite import system

ROOT = Path(__file__).parent.parent.parent.parent
COMMAND = [sys.executable, "-m", "testbed"]


def test_up_until_interrupted():
    system.needs("root", "slurmctld", "slurmd", "munged", "sshd")
    with subprocess.Popen(
        [*COMMAND, "up", "slurm", "sshd"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        lines = list(iter(holder.stdout.readline, f"{READY}\n"))
        folders = [Path(line.split(": ")[1].strip()) for line in lines if line[0] != " "]
        client = next(line for line in lines if "ssh -F" in line).split("{")[0].split()
        told = subprocess.check_output([*client, "key", "sinfo --noheader"], text=True)
        status = subprocess.check_output([*COMMAND, "status"], cwd=ROOT, text=True)
        holder.send_signal(signal.SIGINT)
    assert holder.returncode == 0
    assert "debug*" in told
    for folder in folders:
        assert folder.name.removeprefix("pilotage-") in status
        assert not folder.exists()


def test_a_system_that_is_not_known():
    done = subprocess.run([*COMMAND, "up", "fortran"], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 2
    assert b"fortran" in done.stderr
