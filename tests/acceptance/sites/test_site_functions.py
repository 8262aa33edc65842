"""Functions with files and programs, from Python, at a Slurm: of this machine, and by SSH."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pilotage
from pilotage.client import Client
from tests.rigs.project import file_calls
from tests.rigs.project.command_line import PATIENCE, CommandLine, by_ssh

pytestmark = pytest.mark.slow


@contextmanager
def connected(desk: CommandLine) -> Iterator[Client]:
    before = Path.cwd()
    os.chdir(desk.root)
    try:
        with desk.up(), pilotage.connect() as client:
            yield client.options(site="cluster", via="batch")
    finally:
        os.chdir(before)


def _works(desk: CommandLine) -> None:
    file_calls.make(desk.root)
    with connected(desk) as client:
        file_calls.works(client, desk.root)
        assert client.submit(abs, -3).result(PATIENCE) == 3

        def where():
            from pathlib import Path

            Path("left").touch()
            return str(Path.cwd())

        future = client.submit(where)
        folder = Path(future.result(PATIENCE))
        assert folder.match("s/*/*/scratch/1")
        assert future.left == ["left"]
        # It is removed when its batch job has ended, which may be after its result is here.
        desk.wait(lambda: not folder.exists())
        found = client.submit(["sh", "-c", "echo $SLURM_JOB_ID > job"], outputs=["job"])
        assert found.result(PATIENCE).state == "done"
        assert int((desk.root / "job").read_text()) > 0


def test_functions_with_files_at_a_slurm_here(tmp_path, slurm):
    desk = CommandLine(tmp_path / "project")
    env = slurm.env["SLURM_CONF"]
    site = f'batch = "slurm"\nfolder = "{tmp_path}/site"\n[env]\nSLURM_CONF = "{env}"\n'
    desk.site("cluster", site)
    _works(desk)


def test_functions_with_files_at_a_slurm_by_ssh(tmp_path, login):
    desk = CommandLine(tmp_path / "project")
    desk.site("cluster", by_ssh(login))
    _works(desk)
