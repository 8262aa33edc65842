"""Folders served by SFTP, as an attacker who holds the key of one sees them."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import msgspec
import pytest

from pilotage.base import errors
from pilotage.data.export import Access, ExportLimits, Exports, lay, reclaim, remove, take
from pilotage.data.export.sandbox import Programs
from tests.rigs.node import export_server
from tests.rigs.node.sftp import (
    APPEND,
    CREATE,
    NEW,
    READ,
    TRUNCATE,
    WRITE,
    LostError,
    RefusedError,
    Sftp,
    attrs,
    client,
    run,
    ssh,
    text,
)
from tests.suite import system

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bwrap", "sshd", "ssh", "nsenter", "prlimit")]

#: The largest folder of a system that an attacker could look for.
HOME = str(Path(__file__).resolve().parents[2])


@pytest.fixture
def lab(tmp_path):
    """A folder with one input, which is the user's own file, and a secret beside it."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "raw.csv").write_text("1,2,3\n")
    (tmp_path / "box").mkdir()
    return tmp_path


@pytest.fixture
async def exports():
    async with Exports() as made:
        yield made


async def opened(exports: Exports, lab: Path, **more: int) -> Access:
    layout = lay(lab / "box", {"in/raw.csv": lab / "data/raw.csv"})
    return await exports.open("1.1", layout, bounds=ExportLimits(**more))


async def other(exports: Exports, lab: Path) -> Access:
    (lab / "other").mkdir()
    return await exports.open("2.1", lay(lab / "other", {}))


async def often(times: int, work: Callable[[int], Awaitable[object]]) -> None:
    for number in range(times):
        await work(number)


async def cut(access: Access, work: Callable[[Sftp], Awaitable[None]]) -> None:
    """Work until the connection is lost."""
    async with client(access) as sftp:
        with anyio.fail_after(60), pytest.raises(LostError):
            await work(sftp)


async def refused(*attempts: Awaitable[object]) -> None:
    for attempt in attempts:
        with pytest.raises(RefusedError):
            await attempt


# -- what it is for ------------------------------------------------------------------------------


async def test_inputs_are_read_and_outputs_written(exports, lab):
    access = await opened(exports, lab)
    async with client(access) as sftp:
        assert await sftp.get("in/raw.csv") == b"1,2,3\n"
        await sftp.mkdir("out")
        await sftp.put("out/a", b"abc")
        await sftp.link("out/a", "out/c")
        await sftp.replace("out/a", "out/b")
        await sftp.remove("out/c")
        await sftp.setstat("out/b", attrs(mode=0o755))
        assert await sftp.listing("out") == {".", "..", "b"}
    await exports.close("1.1")
    left = take(lab / "box", "out/b")
    assert left.read_bytes() == b"abc"
    assert stat.S_IMODE(left.stat().st_mode) == 0o755


async def test_an_export_is_there_only_while_it_is_open(exports, lab):
    access = await opened(exports, lab)
    async with client(access) as sftp:
        handle = await sftp.open("new", NEW)
        await exports.close("1.1")
        with pytest.raises(LostError):
            await sftp.write(handle, b"late")
    with pytest.raises(LostError):
        async with client(access):
            pass
    assert (lab / "box/new").read_bytes() == b""
    # The next one has other keys, and the old token means nothing.
    again = await opened(exports, lab)
    assert again.host_key != access.host_key
    for change in ({"key": access.private_key}, {"token": access.token}):
        with pytest.raises(LostError):
            async with client(again, **change):
                pass


async def test_a_closed_export_cuts_only_its_own(exports, lab):
    one, two = await opened(exports, lab), await other(exports, lab)
    async with client(two) as sftp, ssh(one, "-s", "sftp") as (cut, _):
        await exports.close("1.1")
        with anyio.fail_after(30):
            await cut.wait()
        await sftp.put("goes-on", b"x")
    with pytest.raises(errors.Conflict):
        await exports.open("2.1", lay(lab / "other", {}))


async def test_every_export_ends_with_the_program_that_serves_it(lab):
    """As a user without rights, if that user can run this program."""
    system.needs("root", "setpriv")
    # Others can go there, and not to the folder of a test.
    with tempfile.TemporaryDirectory(prefix="pilotage-export-") as made:
        top = Path(made)
        (top / "box").mkdir()
        (top / "raw").write_text("hello\n")
        shutil.chown(top / "box", 65534, 65534)
        await anyio.Path(top).chmod(0o755)
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
        tried = [*user, sys.executable, "-c", "import pilotage"]
        if (await anyio.run_process(tried, check=False, cwd="/")).returncode:
            pytest.skip("other users cannot run this Python")
        argv = [
            *user,
            sys.executable,
            str(export_server.__file__),
            str(top / "box"),
            str(top / "raw"),
        ]
        process = await anyio.open_process(argv, stderr=None, cwd="/")
        async with process:
            assert process.stdout is not None
            with anyio.fail_after(60):
                access = msgspec.json.decode(await process.stdout.receive(), type=Access)
                async with client(access) as sftp:
                    assert await sftp.get("raw") == b"hello\n"
                    await refused(sftp.open("raw", NEW), sftp.listing(str(top)))
                    await sftp.put("out", b"x")
                    assert (top / "box/out").stat().st_uid == 65534
                    process.kill()
                    with pytest.raises(LostError):
                        await often(1_000_000, lambda _: sftp.lstat("."))


# -- somebody else's key -------------------------------------------------------------------------


async def test_a_key_opens_its_own_export_alone(exports, lab):
    one, two = await opened(exports, lab), await other(exports, lab)
    for change in (
        {"token": two.token},
        {"token": two.token, "known_hosts": two.host_key},
        {"token": "0" * 32},
        {"user": "root"},
        {"user": "sshd"},
        {"key": two.private_key},
    ):
        with pytest.raises(LostError):
            async with client(one, **change):
                pass


async def test_the_port_is_for_this_machine_alone(exports, lab):
    access = await opened(exports, lab)
    listening = [
        line.split()[1]
        for name in ("tcp", "tcp6")
        for line in (await anyio.Path(f"/proc/net/{name}").read_text()).splitlines()[1:]
        if line.split()[1].endswith(f":{access.port:04X}") and line.split()[3] == "0A"
    ]
    assert listening == [f"0100007F:{access.port:04X}"]


async def test_strangers_cannot_take_all_the_room(exports, lab):
    access = await opened(exports, lab)
    idle = [await anyio.connect_tcp("127.0.0.1", access.port) for _ in range(100)]
    for one in idle:
        await one.aclose()
    async with await anyio.connect_tcp("127.0.0.1", access.port) as wrong:
        await wrong.send(b"SSH-2.0-OpenSSH_9.2p1 and so on, and more of it")
        assert await wrong.receive() == b"unknown export\n"
    async with client(access) as sftp:
        assert await sftp.lstat("in")


# -- out of the protocol -------------------------------------------------------------------------


async def test_there_is_sftp_and_nothing_else(exports, lab):
    access = await opened(exports, lab)
    loose = ("-o", "ClearAllForwardings=no", "-o", "ExitOnForwardFailure=yes")
    only = b"This service allows sftp connections only.\n"
    for command in ("id", "touch /data/made", "scp -t /data", "internal-sftp", ""):
        assert (await run(access, "-T", command))[:2] == (1, only)
    assert not (lab / "box/made").exists()
    for argv, words in (
        (("-s", "netconf"), "subsystem request failed"),
        (("-tt", "id"), "PTY allocation request failed"),
        (("-W", f"127.0.0.1:{access.port}", "id"), "stdio forwarding failed"),
        ((*loose, "-N", "-R", "0:127.0.0.1:1", "id"), "remote port forwarding failed"),
        ((*loose, "-N", "-R", "/data/sock:/run/x", "id"), "remote port forwarding failed"),
    ):
        _, out, said = await run(access, *argv)
        assert words in said, argv
        assert out in {b"", only.replace(b"\n", b"\r\n"), only}
    assert not (lab / "box/sock").exists()


async def test_a_connection_has_few_sessions_and_an_export_few_connections(exports, lab):
    access = await opened(exports, lab, connections=2)
    shared = ("-o", "ControlMaster=auto", "-o", f"ControlPath={lab}/mux")
    async with AsyncExitStack() as stack:
        for number in range(8):
            first = () if number == 0 else ("-o", "ProxyCommand=false")
            one = await stack.enter_async_context(ssh(access, *shared, *first, "-s", "sftp"))
            if number < 4:
                await Sftp(*one).begin()
            else:
                with pytest.raises(LostError):
                    await Sftp(*one).begin()
    async with client(access), client(access):
        with pytest.raises(LostError):
            async with client(access):
                pass


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
        f"{HOME}/pyproject.toml",
        "/etc/shadow",
        "/root",
        "/tmp",
    ],
)
async def test_no_path_leads_out(exports, lab, path):
    access = await opened(exports, lab)
    async with client(access) as sftp:
        written = path.format(top=lab)
        await refused(
            sftp.open(written),
            sftp.open(written, NEW),
            sftp.mkdir(written),
            sftp.stat(written),
            sftp.readlink(written),
            sftp.listing(written),
            sftp.remove(written),
            sftp.setstat(written, attrs(mode=0o777)),
            sftp.setstat(written, attrs(size=0)),
            sftp.replace(written, "mine"),
            sftp.link(written, "mine"),
            sftp.lstat("mine"),
        )
    assert (lab / "secret").read_text() == "secret"


async def test_around_the_folder_there_is_nothing_of_the_users(exports, lab):
    access = await opened(exports, lab)
    async with client(access) as sftp:
        seen = await sftp.listing("/")
        assert seen <= {".", "..", "data", "dev", "etc", "lib", "lib64", "libx32", "usr"}
        assert await sftp.listing("/dev") == {".", "..", "null"}
        etc = {".", "..", "export", "group", "nsswitch.conf", "passwd"}
        assert await sftp.listing("/etc") == etc
        assert (await sftp.get("/etc/passwd")).count(b"\n") == 1
        await refused(
            sftp.mkdir("/x"),
            sftp.open("/x", NEW),
            sftp.open("/dev/x", NEW),
            sftp.open("/etc/passwd", NEW),
            sftp.open("/etc/export/authorized_keys", WRITE),
            sftp.remove("/etc/export/config"),
            sftp.replace("/etc/passwd", "/etc/other"),
            sftp.setstat("/usr", attrs(mode=0o777)),
            sftp.symlink("x", "/usr/y"),
        )


@pytest.mark.parametrize("to", ["{top}/secret", "../secret", "/proc/self/root", "{top}"])
async def test_links_of_the_client_lead_nowhere(exports, lab, to):
    access = await opened(exports, lab)
    async with client(access) as sftp:
        await sftp.symlink(to.format(top=lab), "link")
        assert await sftp.readlink("link") == to.format(top=lab)
        await refused(
            sftp.open("link"),
            sftp.open("link", NEW),
            sftp.open("link/secret"),
            sftp.open("link/secret", NEW),
            sftp.stat("link"),
            sftp.listing("link"),
            sftp.setstat("link", attrs(size=0)),
            sftp.setstat("link", attrs(mode=0o777)),
            sftp.mkdir("link/made"),
            sftp.replace("in", "link/in"),
            sftp.link("link/secret", "mine"),
            sftp.symlink("x", "link/made"),
            sftp.remove("link/secret"),
        )
        await sftp.lsetstat("link", attrs(times=(1, 1)))
    assert (lab / "secret").read_text() == "secret"
    assert stat.S_IMODE((lab / "secret").stat().st_mode) != 0o777
    assert (lab / "secret").stat().st_mtime != 1
    await exports.close("1.1")
    with pytest.raises(errors.Denied):
        take(lab / "box", "link")


async def test_a_link_that_comes_in_between_leads_nowhere(exports, lab):
    """Two connections: one swaps a folder and a link to outside, the other writes through it."""
    access = await opened(exports, lab)
    (lab / "outside").mkdir()
    async with client(access) as swaps, client(access) as writes:
        await swaps.mkdir("real")
        await swaps.symlink(str(lab / "outside"), "evil")

        async def swap() -> None:
            for _ in range(150):
                await swaps.replace("real", "spare")
                await swaps.replace("evil", "real")
                await swaps.replace("real", "evil")
                await swaps.replace("spare", "real")

        with anyio.move_on_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(swap)
                for number in range(400):
                    try:
                        await writes.put(f"real/{number}", b"x")
                    except RefusedError:
                        continue
    assert list((lab / "outside").iterdir()) == []


async def test_links_that_were_there_lead_nowhere(exports, lab):
    (lab / "box/link").symlink_to(lab)
    access = await opened(exports, lab)
    async with client(access) as sftp:
        for path in ("link/secret", "link"):
            await refused(sftp.open(path), sftp.open(path, NEW))


async def test_what_the_first_client_leaves_does_not_harm_the_second(exports, lab):
    """Names that are mounted over are exchanged for links, and somebody connects again."""
    access = await opened(exports, lab)
    (lab / "outside").mkdir()
    async with client(access) as sftp:
        await sftp.replace("in", "moved")
        await sftp.symlink(str(lab / "outside"), "in")
    async with client(access) as sftp:
        assert await sftp.get("moved/raw.csv") == b"1,2,3\n"
        await refused(sftp.open("moved/raw.csv", NEW), sftp.remove("moved/raw.csv"))
        await refused(sftp.get("in/raw.csv"))
    await exports.close("1.1")
    assert (lab / "data/raw.csv").read_text() == "1,2,3\n"
    assert (lab / "box/moved/raw.csv").read_text() == ""
    assert list((lab / "outside").iterdir()) == []


# -- inputs stay as they are ---------------------------------------------------------------------


async def test_inputs_cannot_be_changed_in_any_way(exports, lab):
    access = await opened(exports, lab)
    async with client(access) as sftp:
        await sftp.put("mine", b"x")
        await sftp.symlink("in/raw.csv", "another")
        for path in ("in/raw.csv", "/data/in/../in/raw.csv", "in//./raw.csv", "another"):
            await refused(
                sftp.open(path, NEW),
                sftp.open(path, WRITE),
                sftp.open(path, READ | WRITE),
                sftp.open(path, READ | TRUNCATE),
                sftp.open(path, APPEND | WRITE | CREATE),
                sftp.setstat(path, attrs(size=0)),
                sftp.setstat(path, attrs(mode=0o777)),
                sftp.setstat(path, attrs(times=(1, 1))),
                sftp.setstat(path, attrs(owner=(os.getuid(), os.getgid()))),
                sftp.link("mine", path),
                sftp.symlink("mine", path),
            )
        for path in ("in/raw.csv", "/data/in/../in/raw.csv", "in//./raw.csv"):
            await refused(
                sftp.remove(path),
                sftp.rename(path, "moved"),
                sftp.replace(path, "moved"),
                sftp.replace("mine", path),
                sftp.link(path, "second"),
            )
        await refused(sftp.rmdir("in"), sftp.remove("in"), sftp.replace(".", "elsewhere"))
        handle = await sftp.open("in/raw.csv")
        await refused(
            sftp.write(handle, b"x"),
            sftp.fsetstat(handle, attrs(size=0)),
            sftp.fsetstat(handle, attrs(mode=0o777)),
        )
    assert (lab / "data/raw.csv").read_text() == "1,2,3\n"
    assert stat.S_IMODE((lab / "data/raw.csv").stat().st_mode) == 0o644
    assert (lab / "data/raw.csv").stat().st_nlink == 1


async def test_inputs_beyond_the_number_of_mounts_are_copies(exports, lab):
    sources = {f"in/{number}": lab / f"data/{number}" for number in range(258)}
    for number, source in enumerate(sources.values()):
        source.write_bytes(b"x" * (number + 1))
    access = await exports.open("1.1", lay(lab / "box", sources))
    async with client(access) as sftp:
        assert await sftp.get("in/1") == b"xx"
        assert await sftp.get("in/257") == b"x" * 258
        await sftp.put("in/1", b"changed")
        await refused(sftp.open("in/2", NEW), sftp.open("in/257", NEW))
    assert (lab / "data/1").read_bytes() == b"xx"


# -- no more than its share ----------------------------------------------------------------------


async def test_what_it_writes_is_bounded(exports, lab, caplog):
    access = await opened(exports, lab, size=1 << 20)

    async def hide(sftp: Sftp) -> None:
        """Remove what is open: it still takes room."""
        handle = await sftp.open("a", NEW)
        await sftp.write(handle, b"x" * (1 << 19))
        await sftp.remove("a")

    await cut(access, lambda sftp: often(1_000_000, lambda _: hide(sftp)))
    assert "sent more than 1048576 bytes" in caplog.text
    with pytest.raises(LostError):
        async with client(access):
            pass


async def test_connections_that_come_and_go_are_counted_together(exports, lab, caplog):
    access = await opened(exports, lab, size=1 << 20)
    for name in "ab":
        async with client(access) as sftp:
            await sftp.put(name, b"x" * (600 << 10))
    with anyio.fail_after(30):
        while exports._names:  # noqa: ASYNC110 - it is looked at each second
            await anyio.sleep(0.05)
    assert "sent more than 1048576 bytes" in caplog.text


@pytest.mark.parametrize("size", [1 << 40, (1 << 63) - 1])
async def test_no_file_is_larger_than_all_may_be(exports, lab, size):
    access = await opened(exports, lab, size=1 << 20)
    attempts: list[Callable[[Sftp], Awaitable[None]]] = [
        lambda sftp: sftp.setstat("c", attrs(size=size)),
        lambda sftp: sftp.put("c", b"x", size - 1),
    ]
    for attempt in attempts:
        async with client(access) as sftp:
            await sftp.put("c", b"")
            with pytest.raises((RefusedError, LostError)):
                await attempt(sftp)
    assert (lab / "box/c").stat().st_size <= 1 << 20


async def test_how_many_files_it_makes_and_opens_is_bounded(exports, lab, caplog):
    access = await opened(exports, lab, entries=500, handles=32)
    async with client(access) as sftp:
        await refused(often(40, lambda number: sftp.open(f"open{number}", NEW)))
    await cut(access, lambda sftp: often(1_000_000, lambda number: sftp.mkdir(f"folder{number}")))
    assert "made more than 500 files" in caplog.text


async def test_files_that_are_hidden_are_too_many(exports, lab, caplog):
    system.needs("root")
    access = await opened(exports, lab, entries=500)
    step = f"/{'x' * 60}"

    async def deepen(sftp: Sftp) -> None:
        """Move all there is to the end of a long path: no path says it any more."""
        await sftp.mkdir("next")
        await often(60, lambda number: sftp.mkdir("next" + step * (number + 1)))
        if "top" in await sftp.listing("."):
            await sftp.replace("top", "next" + step * 60 + "/top")
        await sftp.replace("next", "top")

    await cut(access, lambda sftp: often(1_000_000, lambda _: deepen(sftp)))
    assert "is not served any more" in caplog.text
    with pytest.raises(errors.Denied, match="nested too deep"):
        reclaim(lab / "box")
    remove(lab / "box")
    assert not (lab / "box").exists()


async def test_nothing_is_copied_without_being_sent(exports, lab):
    access = await opened(exports, lab)
    async with client(access) as sftp:
        await sftp.put("a", b"x" * (1 << 20))
        handle = await sftp.open("a", READ | WRITE)
        where = (b"\0" * 16, handle, (1 << 20).to_bytes(8, "big"))
        await refused(sftp.extended("copy-data", handle, *where))
        await refused(sftp.extended("exec@example.org", text("id")))
    assert (lab / "box/a").stat().st_size == 1 << 20


async def test_rights_are_never_lent(exports, lab):
    access = await opened(exports, lab)
    async with client(access) as sftp:
        await sftp.close(await sftp.open("a", NEW, mode=0o6777))
        await sftp.setstat("a", attrs(mode=0o7777))
        await sftp.mkdir("d", 0o7777)
        await sftp.setstat("d", attrs(mode=0))
        await sftp.setstat("a", attrs(owner=(1000, 1000)))
        await refused(sftp.setstat("a", attrs(owner=(12345, 12345))))
    # Until then nobody else can go there.
    await exports.close("1.1")
    reclaim(lab / "box")
    assert stat.S_IMODE((lab / "box/a").stat().st_mode) == 0o777
    assert stat.S_IMODE((lab / "box/d").stat().st_mode) == 0o700
    assert (lab / "box/a").stat().st_uid == os.getuid()


# -- machines that cannot ------------------------------------------------------------------------


async def test_a_program_that_is_missing_is_named(exports, lab, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name, **_: None if name == "bwrap" else name)
    with pytest.raises(errors.Unavailable, match="needs bwrap on this machine") as caught:
        await opened(exports, lab)
    assert 'data = "staged"' in caught.value.hint


async def test_without_a_sandbox_nothing_is_served(exports, lab, monkeypatch):
    found = Programs.find()
    for change in ({"bwrap": "/bin/false"}, {"nsenter": "/bin/false"}, {"sshd": "/bin/false"}):
        programs = msgspec.structs.replace(found, **change)
        monkeypatch.setattr(Programs, "find", lambda programs=programs: programs)
        with pytest.raises(errors.Unavailable, match="allows no sandbox"):
            await opened(exports, lab)
    assert exports._listener is None
