"""Files on their way through a real SSH server, with the program as it is packed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import subprocess

import pytest

from pilotage.base import errors
from pilotage.batch.connection import SiteConnection
from pilotage.batch.model import SiteSettings
from pilotage.batch.shell.ssh import SshShell
from pilotage.data.stage.digest import Digests
from pilotage.data.stage.model import WantedFile
from pilotage.data.stage.pull import Puller
from pilotage.data.stage.push import Pusher
from pilotage.pilot import pack

MIB = 1 << 20


@contextlib.asynccontextmanager
async def staged(shell):
    """Have a connection, and what stages by it."""
    remote = SiteConnection(
        "far", SiteSettings(batch="local", host="key"), shell, pack.archive(), ".pilotage/x"
    )
    digests = Digests()
    async with remote.once() as hand:
        pusher = Pusher(remote, hand.hello.root, digests)
        puller = Puller(remote, hand.hello.root)
        try:
            yield pusher, puller, hand.hello.root
        finally:
            await pusher.close()
            await puller.close()
            digests.close()


@pytest.fixture
async def shell(sshd, tmp_path):
    made = SshShell("far", "key", tmp_path / "state", settings=str(sshd.config))
    yield made
    await made.close()
    words = ("ssh", "-o", f"ControlPath={made.files.socket}", "-O", "exit", "key")
    await asyncio.to_thread(subprocess.run, words, capture_output=True, check=False)


def content(sshd, path: str) -> bytes:
    words = ("ssh", "-F", str(sshd.config), "-o", "BatchMode=yes", "key", "cat", path)
    return subprocess.run(words, capture_output=True, check=True).stdout


async def test_files_go_there_and_come_home(sshd, shell, tmp_path):
    files = {str(tmp_path / f"f{n}"): os.urandom(size) for n, size in enumerate((5, 9 * MIB))}
    for path, data in files.items():
        with open(path, "wb") as file:  # noqa: ASYNC230, PTH123 - a test
            file.write(data)
    async with staged(shell) as (pusher, puller, root):
        found = await pusher.bring(list(files))
        places = {
            path: f"{root}/cache/{one.sha256[:2]}/{one.sha256}" for path, one in found.items()
        }
        for path, data in files.items():
            assert await asyncio.to_thread(content, sshd, places[path]) == data
        await puller.fetch(
            [
                WantedFile(
                    remote=places[path], local=f"{path}.home", size=one.size, sha256=one.sha256
                )
                for path, one in found.items()
            ]
        )
    for path, data in files.items():
        with open(f"{path}.home", "rb") as file:  # noqa: ASYNC230, PTH123 - a test
            assert file.read() == data


async def test_a_connection_that_is_lost_is_gone_on_with(sshd, shell, tmp_path):
    data = os.urandom(200 * MIB)
    big = tmp_path / "big"
    big.write_bytes(data)
    moved: list[int] = []
    with contextlib.suppress(errors.Unavailable):
        async with staged(shell) as (pusher, _, _):
            pusher._meter._report = lambda done, _: moved.append(done)
            waiting = asyncio.create_task(pusher.bring([str(big)]))
            while not moved or moved[-1] < 60 * MIB:  # noqa: ASYNC110 - there is nothing to wait on
                await asyncio.sleep(0.001)
            await asyncio.to_thread(cut, shell)
            with pytest.raises(errors.Unavailable):
                await waiting
    moved.clear()
    async with staged(shell) as (pusher, _, _):
        pusher._meter._report = lambda done, _: moved.append(done)
        found = await pusher.bring([str(big)])
    assert found[str(big)].sha256 == hashlib.sha256(data).hexdigest()
    assert moved[-1] < 190 * MIB


def cut(shell: SshShell) -> None:
    """Kill the process that holds the connection."""
    words = ("ssh", "-o", f"ControlPath={shell.files.socket}", "-O", "check", "key")
    told = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    os.kill(int(told.partition("pid=")[2].rstrip(")\r\n")), 9)
