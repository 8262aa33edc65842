"""A file system that another machine writes to: inotify is blind there, so it is polled."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs.project.project import Rig
from tests.suite import system


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Mount a folder through sshfs; no SSH server is needed, only the program behind it."""
    system.needs("root", "fuse", "sshfs", "sftp-server")
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    ours, theirs = socket.socketpair()
    server = subprocess.Popen(
        [str(system.find("sftp-server"))], stdin=theirs.fileno(), stdout=theirs.fileno()
    )
    mount = subprocess.Popen(
        ["sshfs", "-f", "-o", "passive,dir_cache=no", f":{there}", str(here)],
        stdin=ours.fileno(),
        stdout=ours.fileno(),
    )
    ours.close()
    theirs.close()
    try:
        yield there, here
    finally:
        subprocess.run(["fusermount3", "-u", "-z", str(here)], check=False)
        mount.wait(timeout=30)
        server.kill()
        server.wait()


async def test_files_written_elsewhere_are_found(tmp_path: Path, remote: tuple[Path, Path]) -> None:
    there, here = remote
    rig = Rig(
        tmp_path / "project", f'[rule.r]\nfiles = "{here}/*.dat"\nrun = ["cat", "{{path}}"]\n'
    )
    await rig.until(lambda: os.path.ismount(here))
    async with rig.live():
        (there / "a.dat").write_text("from elsewhere")
        (job,) = await rig.ended(1)
    assert rig.output(job) == "from elsewhere"
    assert job.binding.path == str(here / "a.dat")
