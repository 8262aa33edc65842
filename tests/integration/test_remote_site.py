"""A program of ours at a login node: asked, cut off, found again, full."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from pilotage.base import errors
from pilotage.base.backoff import Backoff
from pilotage.batch import connection
from pilotage.batch.connection import SiteConnection
from pilotage.batch.model import SiteSettings
from pilotage.batch.shell.choose import LocalShell
from pilotage.batch.shell.model import Shell
from pilotage.batch.shell.ssh import SshShell
from pilotage.batch.system.model import BatchCommand
from pilotage.pilot import pack
from testbed.ssh import Sshd, client
from testbed.ssh.server import Server
from tests.rigs.project.terminal import login
from tests.suite import system

PATIENCE = 60.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_RECONNECT", Backoff(first=0.1, limit=0.5))
    monkeypatch.setattr(connection, "_LOOK_S", 0.1)


@pytest.fixture(scope="module")
def program() -> bytes:
    return pack.archive()


@contextlib.asynccontextmanager
async def kept(remote: SiteConnection) -> AsyncIterator[SiteConnection]:
    keeping = asyncio.create_task(remote.keep())
    try:
        yield remote
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        if isinstance(remote.shell, SshShell):
            await remote.shell.logout()


def by_ssh(
    sshd: Sshd, tmp_path: Path, program: bytes, alias: str = "key", **more: Any
) -> SiteConnection:
    shell = SshShell("bed", alias, tmp_path, settings=str(sshd.config))
    site = SiteSettings(batch="slurm", host=alias, **more)
    return SiteConnection("bed", site, shell, program, f".pilotage/{tmp_path.name}")


def here(tmp_path: Path, program: bytes, **more: Any) -> SiteConnection:
    return SiteConnection(
        "bed", SiteSettings(batch="slurm", **more), LocalShell(), program, str(tmp_path / "root")
    )


async def ready(remote: SiteConnection) -> None:
    async with asyncio.timeout(PATIENCE):
        await remote.ready()


async def until(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not so():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.02)


# -- what is asked -------------------------------------------------------------------------------


async def test_it_is_brought_there_and_says_where_it_is(sshd, tmp_path, program):
    async with kept(by_ssh(sshd, tmp_path, program)) as remote:
        assert not remote.up
        assert remote.trouble
        await ready(remote)
        assert remote.up
        assert remote.trouble == ""
        assert remote.hello.user == sshd.user.name
        assert remote.hello.root == str(sshd.user.home / ".pilotage" / tmp_path.name)
        said = await remote.run(BatchCommand(("sh", "-c", "cat; echo err >&2; exit 3"), input="in"))
        assert (said.exit, said.out, said.err) == (3, "in", "err\n")


async def test_the_path_and_the_environment_of_the_site_hold(tmp_path, program):
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "mytool").write_text("#!/bin/sh\necho $WHERE\n")
    (folder / "mytool").chmod(0o755)
    site = here(tmp_path, program, path=(str(folder),), env={"WHERE": "there"})
    async with kept(site) as remote:
        await ready(remote)
        assert (await remote.run(BatchCommand(("mytool",)))).out == "there\n"


async def test_a_program_that_is_not_there_was_certainly_not_run(tmp_path, program):
    async with kept(here(tmp_path, program)) as remote:
        await ready(remote)
        with pytest.raises(errors.Unavailable, match="nonesuch") as caught:
            await remote.run(BatchCommand(("nonesuch",)))
        assert not isinstance(caught.value, errors.Unsure)


async def test_questions_that_are_equal_are_asked_once_and_orders_are_not(tmp_path, program):
    async with kept(here(tmp_path, program)) as remote:
        await ready(remote)
        count = tmp_path / "count"
        call = BatchCommand(("sh", "-c", f"echo x >>{count}; sleep 0.3; wc -l <{count}"))
        found = await asyncio.gather(*(remote.run(call, ask=True) for _ in range(5)))
        assert {one.out.strip() for one in found} == {"1"}
        await asyncio.gather(*(remote.run(call) for _ in range(2)))
        assert len(count.read_text().split()) == 3


async def test_who_asks_and_leaves_takes_nothing_from_the_others(tmp_path, program):
    async with kept(here(tmp_path, program)) as remote:
        await ready(remote)
        call = BatchCommand(("sh", "-c", "sleep 0.3; echo here"))
        first, second = (asyncio.create_task(remote.run(call, ask=True)) for _ in range(2))
        await asyncio.sleep(0.1)
        first.cancel()
        assert (await second).out == "here\n"


async def test_errors_there_are_errors_here(tmp_path, program):
    async with kept(here(tmp_path, program)) as remote:
        await ready(remote)
        with pytest.raises(errors.Denied):
            await remote.call("read", paths=["/etc/passwd"], most=10)
        with pytest.raises(errors.UsageError):
            await remote.call("frobnicate")


async def test_news_are_heard_at_once(tmp_path, program):
    heard = list[dict[str, Any]]()
    async with kept(here(tmp_path, program)) as remote:
        remote.on_news = heard.extend
        await ready(remote)
        news = Path(remote.hello.root) / "news"
        (news / "k.tmp").write_text("{}")
        (news / "k.tmp").rename(news / "key.0.started")
        await until(lambda: bool(heard))
        assert heard[0]["name"] == "key.0.started"


async def test_data_goes_beside(sshd, tmp_path, program):
    async with kept(by_ssh(sshd, tmp_path, program)) as remote:
        with pytest.raises(errors.Unavailable, match="not connected"):
            await remote.bulk(["send", "."])
        await ready(remote)
        process = await remote.bulk(["nonesuch"])
        await process.communicate(b"")
        assert process.returncode not in (0, 255)


# -- what goes wrong -----------------------------------------------------------------------------


async def test_a_cut_in_mid_command_leaves_it_unsure_and_the_way_is_found_again(
    sshd, tmp_path, program
):
    async with kept(by_ssh(sshd, tmp_path, program)) as remote:
        await ready(remote)
        begun = sshd.user.home / f"begun-{os.getpid()}"
        script = f"touch {begun}; exec sleep 300"
        running = asyncio.create_task(remote.run(BatchCommand(("sh", "-c", script))))
        await until(begun.exists)
        begun.unlink()
        before = remote.hello.pid
        sshd.kill_connections("key")
        with pytest.raises(errors.Unsure):
            await running
        await until(lambda: remote.up and remote.hello.pid != before)
        assert (await remote.run(BatchCommand(("echo", "back")))).out == "back\n"


async def test_what_takes_too_long_is_unsure(tmp_path, program):
    async with kept(here(tmp_path, program)) as remote:
        await ready(remote)
        with pytest.raises(errors.Unsure, match="sleep"):
            await remote.run(BatchCommand(("sleep", "30")), timeout=0.3)
        assert remote.up


async def test_failures_in_a_row_give_the_site_a_rest(tmp_path, program):
    async with kept(here(tmp_path, program)) as remote:
        await ready(remote)
        for _ in range(3):
            with pytest.raises(errors.Unsure):
                await remote.run(BatchCommand(("sleep", "30")), timeout=0.1)
        with pytest.raises(errors.Unavailable, match="has not answered since") as caught:
            await remote.run(BatchCommand(("true",)))
        assert not isinstance(caught.value, errors.Unsure)


async def test_while_the_server_is_down_it_waits_says_so_and_goes_on(sshd, tmp_path, program):
    async with kept(by_ssh(sshd, tmp_path, program)) as remote:
        await ready(remote)
        sshd.stop("key")
        try:
            await until(lambda: "refuses connections" in remote.trouble)
            assert not remote.up
            with pytest.raises(errors.Unavailable, match="refuses connections"):
                await remote.call("hello")
            since = remote.since
            await asyncio.sleep(1.5)
            assert remote.since == since, "it is down since it went down"
        finally:
            sshd.start("key")
        await ready(remote)
        assert remote.trouble == ""


async def test_a_program_that_no_longer_answers_is_replaced(tmp_path, program, monkeypatch):
    monkeypatch.setattr(connection, "_GRACE_S", 0.5)
    async with kept(here(tmp_path, program)) as remote:
        await ready(remote)
        before = remote.hello.pid
        os.kill(before, 19)
        with pytest.raises(errors.Unsure):
            await remote.run(BatchCommand(("true",)), timeout=0.2)
        await until(lambda: remote.up and remote.hello.pid != before)


async def test_where_a_person_must_log_in_it_waits_for_that(sshd, tmp_path, program):
    async with kept(by_ssh(sshd, tmp_path, program, "code")) as remote:
        await until(lambda: "pilotage site login bed" in remote.trouble)
        assert remote.shell.barred
        logins = (sshd.folder / "code" / "log").read_text().count("Connection")
        await asyncio.sleep(1)
        assert (sshd.folder / "code" / "log").read_text().count("Connection") == logins
        status, seen = await asyncio.to_thread(
            login, sshd, tmp_path, "code", ("Password:", sshd.code())
        )
        assert status == 0, seen
        await ready(remote)
        assert remote.hello.user == sshd.user.name


async def test_when_it_is_called_off_nothing_is_left(tmp_path, program):
    remote = here(tmp_path, program)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(remote.keep)
        await ready(remote)
        pid = remote.hello.pid
        tasks.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_trouble_of_this_machine_is_waited_for_too(tmp_path, program, monkeypatch):
    async def full(_: LocalShell) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LocalShell, "connect", full)
    async with kept(here(tmp_path, program)) as remote:
        await until(lambda: "No space left" in remote.trouble)
        monkeypatch.undo()
        await ready(remote)


async def test_the_connection_outlives_us(sshd, tmp_path, program):
    remote = by_ssh(sshd, tmp_path, program)
    keeping = asyncio.create_task(remote.keep())
    await ready(remote)
    keeping.cancel()
    await asyncio.wait([keeping])
    assert await remote.shell.alive()
    async with kept(by_ssh(sshd, tmp_path, program)) as again:
        await ready(again)


async def test_two_places_are_enough_for_many_who_bring_data(sshd, tmp_path, program):
    lines = [f"AuthorizedKeysFile {sshd.folder}/authorized_keys", "MaxSessions 2"]
    if "narrow" not in sshd.servers:
        sshd.servers["narrow"] = Server(sshd, "narrow", lines)
        client.write(sshd.config, sshd.user.name, sshd.folder / "id", sshd.servers.values())
    async with kept(by_ssh(sshd, tmp_path, program, "narrow")) as remote:
        await ready(remote)

        async def one() -> int | None:
            process = await remote.bulk(["receive", remote.hello.root])
            await process.communicate(b"")
            return process.returncode

        assert await asyncio.gather(*(one() for _ in range(4))) == [0] * 4


@pytest.mark.parametrize("noise", ["echo Welcome", "echo bad weather today >&2"])
async def test_a_login_shell_may_chatter(tmp_path, program, noise):
    class Chatty(LocalShell):
        async def start(self, argv, **streams):
            return await super().start(["sh", "-c", f'{noise}; exec "$@"', "sh", *argv], **streams)

    shell: Shell = Chatty()
    remote = SiteConnection(
        "bed", SiteSettings(batch="slurm"), shell, program, str(tmp_path / "root")
    )
    async with kept(remote):
        await ready(remote)


async def test_a_python_that_is_missing_is_told(tmp_path, program):
    async with kept(here(tmp_path, program, python="python9")) as remote:
        await until(lambda: "python9" in remote.trouble)


@pytest.fixture
def full(tmp_path: Path):
    """Mount a disk of a few kilobytes."""
    system.needs("root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


async def test_a_full_disk_there_is_told_and_waited_for(tmp_path, program, full):
    remote = SiteConnection(
        "bed", SiteSettings(batch="slurm"), LocalShell(), program, str(full / "root")
    )
    async with kept(remote):
        await until(lambda: "No space left" in remote.trouble)
        grow = ["mount", "-o", "remount,size=64m", str(full)]
        await asyncio.to_thread(subprocess.run, grow, check=True)
        await ready(remote)
        (full / "fill").write_bytes(b"")
        with contextlib.suppress(OSError), (full / "fill").open("wb", buffering=0) as fill:
            while True:
                fill.write(bytes(1 << 16))
        with pytest.raises(errors.Unavailable, match="No space left"):
            await remote.call("prepare", key="k1", order={"v": 1, "items": ["x" * 9000]})
        (full / "fill").unlink()
        await remote.call("prepare", key="k1", order={"v": 1, "items": []})
