"""Sandboxes served by SFTP, as an attacker who holds the key of one sees them."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import asyncssh
import pytest

from pilotage import errors
from pilotage.site.jail import HOST, Access, Bounds, Jails, lay, take

pytestmark = pytest.mark.anyio

WRITE = asyncssh.FXF_WRITE | asyncssh.FXF_CREAT | asyncssh.FXF_TRUNC
REFUSED = (asyncssh.SFTPError, asyncssh.SFTPFailure)


@pytest.fixture
def lab(tmp_path):
    """A sandbox with one input, which is a hard link to the user's own file, and a secret."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "raw.csv").write_text("1,2,3\n")
    folder = tmp_path / "box"
    folder.mkdir()
    lay(folder, {"in/raw.csv": tmp_path / "data" / "raw.csv"})
    return tmp_path


@pytest.fixture
async def jails():
    async with Jails() as made:
        yield made


async def connect(access: Access, **more: object) -> asyncssh.SSHClientConnection:
    options: dict[str, object] = {
        "username": access.user,
        "client_keys": [asyncssh.import_private_key(access.private_key)],
        "host_key_alias": HOST,
        "known_hosts": access.host_key.encode(),
        "config": None,
        "agent_path": None,
    }
    return await asyncssh.connect("127.0.0.1", access.port, **(options | more))


@asynccontextmanager
async def client(access: Access) -> AsyncIterator[asyncssh.SFTPClient]:
    async with await connect(access) as connection, connection.start_sftp_client() as made:
        yield made


async def opened(jails: Jails, lab: Path, **more: int) -> Access:
    bounds = Bounds(**more)
    return await jails.open("1.1", lab / "box", readonly=["in/raw.csv"], bounds=bounds)


async def write(sftp: asyncssh.SFTPClient, path: str, data: bytes, offset: int = 0) -> None:
    async with sftp.open(path, WRITE, encoding=None) as file:
        await file.write(data, offset)


# -- what it is for ------------------------------------------------------------------------------


async def test_inputs_are_read_and_outputs_written(jails, lab):
    access = await opened(jails, lab)
    async with client(access) as sftp:
        assert await (await sftp.open("/in/raw.csv")).read() == "1,2,3\n"
        await sftp.mkdir("out")
        await write(sftp, "out/a", b"abc")
        await sftp.posix_rename("out/a", "out/b")
        await sftp.chmod("out/b", 0o4755)
        assert set(await sftp.listdir("out")) == {".", "..", "b"}
        assert await sftp.realpath("out/../../../in") == "/in"
    await jails.close("1.1")
    left = take(lab / "box", "out/b")
    assert left.read_bytes() == b"abc"
    assert stat.S_IMODE(left.stat().st_mode) == 0o755
    assert (lab / "box/in/raw.csv").stat().st_ino == (lab / "data/raw.csv").stat().st_ino
