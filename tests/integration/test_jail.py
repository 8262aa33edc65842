"""Sandboxes served by SFTP, as an attacker who holds the key of one sees them."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import asyncssh
import pytest

from pilotage.base import errors
from pilotage.data.export import HOST, Access, Bounds, Jails, lay, take

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


async def often(times: int, work: Callable[[int], Awaitable[object]]) -> None:
    for number in range(times):
        await work(number)


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
        await sftp.link("out/a", "out/c")
        await sftp.posix_rename("out/a", "out/b")
        await sftp.remove("out/c")
        await sftp.chmod("out/b", 0o4755)
        assert set(await sftp.listdir("out")) == {".", "..", "b"}
        assert await sftp.realpath("out/../../../in") == "/in"
    await jails.close("1.1")
    left = take(lab / "box", "out/b")
    assert left.read_bytes() == b"abc"
    assert stat.S_IMODE(left.stat().st_mode) == 0o755
    assert (lab / "box/in/raw.csv").stat().st_ino == (lab / "data/raw.csv").stat().st_ino


async def test_a_jail_is_there_only_while_it_is_open(jails, lab):
    access = await opened(jails, lab)
    async with client(access) as sftp:
        file = await sftp.open("new", WRITE)
        await jails.close("1.1")
        with pytest.raises((asyncssh.Error, OSError)):
            await file.write("late", 0)
    with pytest.raises((asyncssh.Error, OSError)):
        await connect(access)
    assert (lab / "box/new").read_bytes() == b""
    # The next one has another key, on another port.
    again = await opened(jails, lab)
    assert again.host_key != access.host_key
    with pytest.raises(asyncssh.PermissionDenied):
        await connect(again, client_keys=[asyncssh.import_private_key(access.private_key)])


async def test_a_closed_jail_cuts_only_its_own(jails, lab):
    (lab / "other").mkdir()
    one = await opened(jails, lab)
    two = await jails.open("2.1", lab / "other", readonly=[])
    async with client(two) as sftp, await connect(one) as cut:
        await jails.close("1.1")
        with anyio.fail_after(30):
            await cut.wait_closed()
        await write(sftp, "goes-on", b"x")
    with pytest.raises(errors.Conflict):
        await jails.open("2.1", lab / "other", readonly=[])


# -- somebody else's key -------------------------------------------------------------------------


async def test_a_key_opens_its_own_jail_alone(jails, lab):
    (lab / "other").mkdir()
    one = await opened(jails, lab)
    two = await jails.open("2.1", lab / "other", readonly=[])
    for user, key in ((two.user, one.private_key), ("root", one.private_key), ("", "")):
        keys = [asyncssh.import_private_key(key)] if key else []
        with pytest.raises(asyncssh.PermissionDenied):
            await connect(one, username=user, client_keys=keys, password="x")


async def test_the_port_is_for_this_machine_alone(jails, lab):
    access = await opened(jails, lab)
    listening = [
        line.split()[1]
        for name in ("tcp", "tcp6")
        for line in (await anyio.Path(f"/proc/net/{name}").read_text()).splitlines()[1:]
        if line.split()[1].endswith(f":{access.port:04X}") and line.split()[3] == "0A"
    ]
    assert listening == [f"0100007F:{access.port:04X}"]


async def test_strangers_cannot_take_all_the_room(jails, lab):
    access = await opened(jails, lab)
    idle = [await anyio.connect_tcp("127.0.0.1", access.port) for _ in range(100)]
    for one in idle:
        await one.aclose()
    async with client(access) as sftp:
        assert await sftp.exists("/in")


# -- out of the protocol -------------------------------------------------------------------------


async def test_there_is_sftp_and_nothing_else(jails, lab):
    access = await opened(jails, lab)
    async with await connect(access) as connection:
        for more in ({"command": "id"}, {"command": "scp -t /"}, {}, {"subsystem": "netconf"}):
            with pytest.raises(asyncssh.ChannelOpenError):
                await connection.create_process(**more)
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_connection("127.0.0.1", access.port)
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_unix_connection("/run/x.sock")
        with pytest.raises(asyncssh.ChannelListenError):
            await connection.forward_remote_port("", 0, "127.0.0.1", 1)
        with pytest.raises(asyncssh.ChannelListenError):
            await connection.forward_remote_path(str(lab / "sock"), "/run/x.sock")
    assert not (lab / "sock").exists()


async def test_a_connection_has_few_channels_and_a_jail_few_connections(jails, lab):
    access = await opened(jails, lab, connections=2)
    async with await connect(access) as connection:
        with pytest.raises(asyncssh.ChannelOpenError):
            await often(100, lambda _: connection.start_sftp_client())
    async with await connect(access), await connect(access):
        with pytest.raises((asyncssh.Error, OSError)):
            async with await connect(access) as third:
                await third.start_sftp_client()


# -- out of the folder ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "/../secret",
        "in/../../secret",
        "....//secret",
        "in/./../../../secret",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd",
        "/dev/stdin",
        "{top}/secret",
        "//{top}/secret",
    ],
)
async def test_no_path_leads_out(jails, lab, path):
    access = await opened(jails, lab)
    async with client(access) as sftp:
        written = path.format(top=lab)
        for attempt in (
            sftp.open(written),
            sftp.stat(written),
            sftp.readlink(written),
            sftp.listdir(written),
            sftp.remove(written),
            sftp.chmod(written, 0o777),
            sftp.truncate(written, 0),
            sftp.posix_rename(written, "mine"),
            sftp.link(written, "mine"),
        ):
            with pytest.raises(REFUSED):
                await attempt
        assert (lab / "secret").read_text() == "secret"
        assert await sftp.exists("mine") is False


@pytest.mark.parametrize("text", ["{top}/secret", "../secret", "/", "..", "/proc/self/root", "."])
async def test_links_of_the_client_lead_nowhere(jails, lab, text):
    access = await opened(jails, lab)
    async with client(access) as sftp:
        await sftp.symlink(text.format(top=lab), "link")
        assert await sftp.readlink("link") == text.format(top=lab)
        for attempt in (
            sftp.open("link"),
            sftp.open("link", WRITE),
            sftp.open("link/secret"),
            sftp.open("link/secret", WRITE),
            sftp.stat("link"),
            sftp.listdir("link"),
            sftp.truncate("link", 0),
            sftp.mkdir("link/made"),
            sftp.posix_rename("in", "link/in"),
            sftp.link("link/secret", "mine"),
            sftp.link("link", "mine"),
            sftp.symlink("x", "link/made"),
            sftp.remove("link/secret"),
        ):
            with pytest.raises(REFUSED):
                await attempt
        await sftp.chmod("link", 0o777)
        await sftp.utime("link", (1, 1))
    assert (lab / "secret").read_text() == "secret"
    assert stat.S_IMODE((lab / "secret").stat().st_mode) != 0o777
    assert (lab / "secret").stat().st_mtime != 1
    await jails.close("1.1")
    with pytest.raises(errors.Denied):
        take(lab / "box", "link")


async def test_a_link_that_comes_in_between_leads_nowhere(jails, lab):
    """Two connections: one swaps a folder and a link to outside, the other writes through it."""
    access = await opened(jails, lab)
    (lab / "outside").mkdir()
    async with client(access) as swaps, client(access) as writes:
        await swaps.mkdir("real")
        await swaps.symlink(str(lab / "outside"), "evil")

        async def swap() -> None:
            for _ in range(150):
                await swaps.posix_rename("real", "spare")
                await swaps.posix_rename("evil", "real")
                await swaps.posix_rename("real", "evil")
                await swaps.posix_rename("spare", "real")

        with anyio.move_on_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(swap)
                for number in range(400):
                    try:
                        await write(writes, f"real/{number}", b"x")
                    except asyncssh.SFTPError:
                        continue
    assert list((lab / "outside").iterdir()) == []


async def test_links_and_devices_that_were_there_lead_nowhere(jails, lab):
    (lab / "box/link").symlink_to(lab)
    os.mkfifo(lab / "box/pipe")
    access = await opened(jails, lab)
    async with client(access) as sftp:
        with anyio.fail_after(30):
            for path in ("link/secret", "link", "pipe"):
                with pytest.raises(REFUSED):
                    await sftp.open(path)
                with pytest.raises(REFUSED):
                    await sftp.open(path, WRITE)


# -- inputs stay as they are ---------------------------------------------------------------------


async def test_inputs_cannot_be_changed_in_any_way(jails, lab):
    access = await opened(jails, lab)
    async with client(access) as sftp:
        await write(sftp, "mine", b"x")
        append = asyncssh.FXF_APPEND | asyncssh.FXF_CREAT
        for path in ("in/raw.csv", "/in/../in/raw.csv", "in//./raw.csv"):
            for attempt in (
                sftp.open(path, WRITE),
                sftp.open(path, asyncssh.FXF_WRITE),
                sftp.open(path, asyncssh.FXF_READ | asyncssh.FXF_WRITE),
                sftp.open(path, asyncssh.FXF_READ | asyncssh.FXF_TRUNC),
                sftp.open(path, append),
                sftp.truncate(path, 0),
                sftp.chmod(path, 0o777),
                sftp.utime(path, (1, 1)),
                sftp.setstat(path, asyncssh.SFTPAttrs(size=1)),
                sftp.remove(path),
                sftp.rename(path, "moved"),
                sftp.posix_rename(path, "moved"),
                sftp.posix_rename("mine", path),
                sftp.link(path, "another"),
                sftp.link("mine", path),
                sftp.symlink("mine", path),
            ):
                with pytest.raises(REFUSED):
                    await attempt
        for attempt in (
            sftp.posix_rename("in", "elsewhere"),
            sftp.rename("in", "elsewhere"),
            sftp.rmdir("in"),
            sftp.posix_rename(".", "elsewhere"),
            sftp.remove("in"),
        ):
            with pytest.raises(REFUSED):
                await attempt
        async with sftp.open("in/raw.csv") as file:
            for more in (file.write("x"), file.truncate(0), file.chmod(0o777)):
                with pytest.raises(REFUSED):
                    await more
    assert (lab / "data/raw.csv").read_text() == "1,2,3\n"
    assert stat.S_IMODE((lab / "data/raw.csv").stat().st_mode) == 0o644


async def test_an_input_is_known_by_whatever_name(jails, lab):
    """The folder had a second name for the input before anybody could forbid that."""
    os.link(lab / "data/raw.csv", lab / "box/again")
    access = await opened(jails, lab)
    async with client(access) as sftp:
        for attempt in (
            sftp.open("again", WRITE),
            sftp.truncate("again", 0),
            sftp.chmod("again", 0o777),
            sftp.link("again", "more"),
        ):
            with pytest.raises(REFUSED):
                await attempt
    assert (lab / "data/raw.csv").read_text() == "1,2,3\n"


# -- no more than its share ----------------------------------------------------------------------


async def test_what_was_removed_and_closed_is_free_again(jails, lab):
    access = await opened(jails, lab, size=1 << 20)
    async with client(access) as sftp:
        for _ in range(3):
            async with sftp.open("a", WRITE, encoding=None) as file:
                await file.write(b"x" * (1 << 20))
                await sftp.remove("a")


async def test_what_it_writes_is_bounded(jails, lab):
    access = await opened(jails, lab, size=1 << 20, entries=20, handles=8)
    async with client(access) as sftp:
        await write(sftp, "a", b"x" * (1 << 19))
        for attempt in (
            write(sftp, "b", b"x" * ((1 << 19) + 1)),
            write(sftp, "c", b"x", 1 << 40),
            sftp.truncate("a", 1 << 40),
            sftp.truncate("a", (1 << 63) - 1),
        ):
            with pytest.raises(REFUSED):
                await attempt
        await sftp.remove("a")
        await write(sftp, "b", b"x" * (1 << 20))
        await sftp.remove("b")
        refused = ""
        for name in "cdef":
            # Removed while it is open, it still takes room.
            file = await sftp.open(name, WRITE, encoding=None)
            try:
                await file.write(b"x" * (1 << 19))
            except asyncssh.SFTPError:
                refused += name
            await sftp.remove(name)
        assert refused == "ef"
        with pytest.raises(REFUSED):
            await often(10, lambda number: sftp.open(f"open{number}", WRITE))
    async with client(access) as sftp:
        with pytest.raises(REFUSED):
            await often(40, lambda number: sftp.mkdir(f"folder{number}"))


async def test_one_that_copies_into_itself_comes_to_an_end(jails, lab):
    access = await opened(jails, lab, size=4 << 20)
    async with client(access) as sftp:
        await write(sftp, "a", b"x" * (1 << 20))
        file = await sftp.open("a", asyncssh.FXF_READ | asyncssh.FXF_WRITE)
        assert file._handle is not None
        endless = sftp._handler.copy_data(file._handle, 0, 0, file._handle, 1 << 20)
        with anyio.fail_after(30), pytest.raises(REFUSED):
            await endless
    assert (lab / "box/a").stat().st_size <= 4 << 20


async def test_rights_are_never_lent(jails, lab):
    access = await opened(jails, lab)
    async with client(access) as sftp:
        attrs = asyncssh.SFTPAttrs(permissions=0o6777)
        await (await sftp.open("a", WRITE, attrs=attrs)).close()
        await sftp.chmod("a", 0o7777)
        await sftp.mkdir("d", asyncssh.SFTPAttrs(permissions=0o7777))
        await sftp.chmod("d", 0)
        await sftp.setstat("a", asyncssh.SFTPAttrs(uid=os.getuid(), gid=os.getgid()))
        with pytest.raises(REFUSED):
            await sftp.setstat("a", asyncssh.SFTPAttrs(uid=12345, gid=12345))
    assert stat.S_IMODE((lab / "box/a").stat().st_mode) == 0o777
    assert stat.S_IMODE((lab / "box/d").stat().st_mode) == 0o700


async def test_requests_come_no_faster_than_allowed(jails, lab):
    access = await opened(jails, lab, rate=50)
    async with client(access) as sftp:
        begun = anyio.current_time()
        for _ in range(80):
            await sftp.lstat("/")
        assert anyio.current_time() - begun > 0.4


async def test_one_who_asks_and_does_not_listen_is_not_worked_for(jails, lab):
    """Replies wait in this process, so their number must have a bound."""
    (lab / "box/big").write_bytes(b"x" * (4 << 20))
    access = await opened(jails, lab)
    async with await connect(access) as deaf, deaf.start_sftp_client() as sftp:
        file = await sftp.open("big", encoding=None)
        handler, handle = sftp._handler, file._handle
        assert handle is not None
        assert deaf._transport is not None
        deaf._transport.pause_reading()
        try:
            async with anyio.create_task_group() as group:
                for _ in range(64):
                    group.start_soon(handler.read, handle, 0, 1 << 20)
                with anyio.fail_after(60):
                    while waiting(jails) <= 1 << 20:  # noqa: ASYNC110 - a buffer that fills
                        await anyio.sleep(0.02)
                await anyio.sleep(0.3)
                assert waiting(jails) < 8 << 20
                await jails.close("1.1")
                group.cancel_scope.cancel()
        finally:
            # Or it waits for a good-bye that it does not read.
            deaf.abort()


def waiting(jails: Jails) -> int:
    """Return how many bytes of replies wait for the one client."""
    [cell] = jails._users.values()
    connection: Any
    [connection] = cell.connections
    return max(int(one.get_write_buffer_size()) for one in connection._channels.values())


def test_what_is_missing_is_named(monkeypatch, tmp_path):
    monkeypatch.delattr("pilotage.data.export.door", raising=False)
    monkeypatch.setitem(sys.modules, "pilotage.data.export.door", None)

    async def open_one() -> None:
        await Jails().open("1.1", tmp_path, readonly=[])

    with pytest.raises(errors.Unavailable, match="asyncssh") as caught:
        anyio.run(open_one)
    assert "pilotage[ssh]" in caught.value.hint
