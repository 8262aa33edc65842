"""The same small job through batch systems that are not Slurm."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.job.model import State
from testbed.condor import Condor
from testbed.gridengine import GridEngine
from testbed.ssh import Sshd
from tests.rigs.project.command_line import CommandLine, by_ssh
from tests.suite import system

pytestmark = pytest.mark.slow

BOOK = """
[rule.double]
files = "raw/*.txt"
site = "cluster"
run = "batch"
script = '''
echo "doubles $PILOTAGE_STEM"
cat "$PILOTAGE_PATH" "$PILOTAGE_PATH" > "twice/$PILOTAGE_STEM"
'''
cwd = "{base}"
outputs = {twice = "twice/{stem}"}
"""


def works(root: Path, site: str) -> None:
    """Have some files become jobs at a site, and one job fail."""
    desk = CommandLine(root, rules=BOOK)
    desk.site("cluster", site)
    for folder in ("raw", "twice"):
        (desk.root / folder).mkdir()
    with desk.up():
        for name in "abc":
            desk.write(f"raw/{name}.txt", f"{name}\n")
        jobs = desk.made("double", 3)
        assert {job.state for job in jobs} == {State.DONE}, desk.told()
        assert [desk.read(f"twice/{name}") for name in "abc"] == ["a\na\n", "b\nb\n", "c\nc\n"]
        assert desk.run("logs", str(jobs[0].id)).startswith("doubles ")
        [failed] = desk.ends(desk.submit("--site", "cluster", "--via", "batch", "--", "false"))
        assert (failed.state, failed.reason) == (State.FAILED, "exited with code 1")
        running = desk.submit("--site", "cluster", "--via", "batch", "--", "sleep", "1000")
        desk.becomes(running, State.RUNNING)
        desk.run("cancel", str(running))
        assert [job.state for job in desk.ends(running)] == [State.CANCELLED]


@pytest.fixture
def condor_login(condor: Condor) -> Iterator[Sshd]:
    system.needs("sshd", "ssh", "ssh-keygen")
    with Sshd(condor.shared, env=condor.env) as servers:
        yield servers


def test_htcondor(tmp_path, condor: Condor, condor_login: Sshd):
    path = condor.env["PATH"].split(os.pathsep)[0]
    works(tmp_path / "project", by_ssh(condor_login, "htcondor", more=f'path = ["{path}"]\n'))


def test_gridengine(tmp_path, gridengine: GridEngine):
    env = "".join(
        f'{name} = "{value}"\n'
        for name, value in gridengine.env.items()
        if name.startswith("SGE") or name == "PATH"
    )
    site = f'batch = "gridengine"\nfolder = "{tmp_path}/site"\n[env]\n{env}'
    works(tmp_path / "project", site)
