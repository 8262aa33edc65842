"""Login nodes by OpenSSH: every way to log in, one connection, and what becomes of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pilotage.base import errors
from pilotage.batch.shell import ssh
from pilotage.batch.shell.ssh import SshShell
from testbed.ssh import Sshd, client
from testbed.ssh.server import Server
from tests.rigs.project.terminal import LOGIN, login, typed
from tests.suite import programs


@pytest.fixture
async def shells(sshd: Sshd, tmp_path: Path) -> AsyncIterator[list[SshShell]]:
    """Hold shells whose connections end with the test."""
    made: list[SshShell] = []
    yield made
    for one in made:
        await one.logout()


@pytest.fixture
def shell(sshd: Sshd, tmp_path: Path, shells: list[SshShell]) -> SshShell:
    made = SshShell("bed", "key", tmp_path, settings=str(sshd.config))
    shells.append(made)
    return made


@pytest.fixture(scope="module")
def narrow(sshd: Sshd) -> Server:
    """Serve two programs a connection, not one more."""
    lines = [f"AuthorizedKeysFile {sshd.folder}/authorized_keys", "MaxSessions 2"]
    return more(sshd, "narrow", lines)


def more(sshd: Sshd, alias: str, lines: list[str]) -> Server:
    if alias not in sshd.servers:
        sshd.servers[alias] = Server(sshd, alias, lines)
        client.write(sshd.config, sshd.user.name, sshd.folder / "id", sshd.servers.values())
    return sshd.servers[alias]


async def out(process: Process) -> str:
    said, _ = await process.communicate()
    return said.decode().strip()


# -- ways to log in ------------------------------------------------------------------------------


@pytest.mark.parametrize("alias", ["key", "certificate", "behind"])
async def test_a_key_a_certificate_and_a_jump_host_need_nobody(sshd, tmp_path, shells, alias):
    shell = SshShell("bed", alias, tmp_path, settings=str(sshd.config))
    shells.append(shell)
    assert not await shell.alive()
    await shell.connect()
    assert await shell.alive()
    assert not shell.barred
    assert await out(await shell.start(["id", "-un"])) == sshd.user.name


async def test_an_agent_has_the_key(sshd, tmp_path, shells, monkeypatch):
    with agent(tmp_path / "agent", sshd.folder / "id") as socket:
        settings = tmp_path / "settings"
        text = sshd.config.read_text().replace("IdentityAgent none", f"IdentityAgent {socket}")
        text = text.replace(f"IdentityFile {sshd.folder}/id\n", "IdentityFile none\n")
        settings.write_text(text.replace("IdentitiesOnly yes", "IdentitiesOnly no"))
        shell = SshShell("bed", "key", tmp_path, settings=str(settings))
        shells.append(shell)
        await shell.connect()
    assert await out(await shell.start(["id", "-un"])) == sshd.user.name


class agent:  # noqa: N801 - it is used like a function
    """An agent that holds one key."""

    def __init__(self, socket: Path, key: Path) -> None:
        self._socket, self._key = socket, key

    def __enter__(self) -> Path:
        command = ["ssh-agent", "-D", "-a", str(self._socket)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        programs.until_ready(self._process, self._socket.exists)
        env = {**os.environ, "SSH_AUTH_SOCK": str(self._socket)}
        subprocess.run(["ssh-add", str(self._key)], env=env, check=True, capture_output=True)
        return self._socket

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


async def test_a_one_time_code_is_asked_once_and_outlives_who_asked(sshd, tmp_path, shells):
    shell = SshShell("bed", "code", tmp_path, settings=str(sshd.config))
    shells.append(shell)
    with pytest.raises(errors.Unavailable, match="wants a person to log in") as caught:
        await shell.connect()
    assert caught.value.hint == "`pilotage site login bed`"
    assert shell.barred
    status, seen = await asyncio.to_thread(
        login, sshd, tmp_path, "code", ("Password:", sshd.code())
    )
    assert status == 0, seen
    # The process that asked has gone; this is another, and so is the next.
    await shell.connect()
    assert not shell.barred
    assert await out(await shell.start(["id", "-un"])) == sshd.user.name
    again = SshShell("bed", "code", tmp_path, settings=str(sshd.config))
    await again.connect()
    assert await out(await again.start(["echo", "still"])) == "still"


async def test_a_wrong_code_is_no_login(sshd, tmp_path):
    wrong = [("Password:", "1")] * 3
    status, _ = await asyncio.to_thread(login, sshd, tmp_path, "code", *wrong)
    assert status != 0
    assert not await SshShell("bed", "code", tmp_path, settings=str(sshd.config)).alive()


async def test_no_second_connection_is_opened_behind_our_back(sshd, tmp_path, shells, shell):
    await shell.connect()
    await shell.logout()
    with pytest.raises(errors.Unavailable):
        await shell.start(["true"])
    assert not await shell.alive()


# -- who is at the other end ---------------------------------------------------------------------


@pytest.fixture
def strange(sshd: Sshd, tmp_path: Path) -> Path:
    """Write settings that know no host, and would trust any."""
    settings = tmp_path / "strange"
    text = sshd.config.read_text().replace(f"{sshd.folder}/known_hosts", f"{tmp_path}/known")
    settings.write_text(text.replace("StrictHostKeyChecking yes", "StrictHostKeyChecking no"))
    return settings


@pytest.mark.parametrize("alias", ["key", "behind"])
async def test_a_host_that_is_not_known_is_refused_whatever_the_settings_say(
    sshd, tmp_path, strange, alias
):
    shell = SshShell("bed", alias, tmp_path, settings=str(strange))
    with pytest.raises(errors.Unavailable, match="is not known") as caught:
        await shell.connect()
    assert "pilotage site login bed" in caught.value.hint
    assert shell.barred


async def test_a_host_with_another_key_is_refused_loudly(sshd, tmp_path, strange):
    port = sshd.servers["key"].port
    other = (sshd.folder / "jump" / "host_key.pub").read_text()
    (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {other}")
    shell = SshShell("bed", "key", tmp_path, settings=str(strange))
    with pytest.raises(errors.Denied, match="HAS CHANGED") as caught:
        await shell.connect()
    assert f"{tmp_path}/known" in caught.value.hint
    assert shell.barred


async def test_a_person_may_say_that_a_key_is_right(sshd, tmp_path, strange, shells):
    words = [sys.executable, "-c", LOGIN, "key", str(tmp_path), str(strange)]
    status, seen = await asyncio.to_thread(typed, words, [("(yes/no", "yes")])
    assert status == 0, seen
    shell = SshShell("bed", "key", tmp_path, settings=str(strange))
    shells.append(shell)
    assert await shell.alive()


# -- what goes wrong -----------------------------------------------------------------------------


async def test_a_host_that_does_not_exist(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(errors.Unavailable, match="there is no host"):
        await SshShell(
            "bed", "nowhere.invalid", tmp_path, settings=str(tmp_path / "empty")
        ).connect()


async def test_a_server_that_is_stopped_and_started(sshd, tmp_path, shell):
    await shell.connect()
    sshd.stop("key")
    try:
        with pytest.raises(errors.Unavailable, match="refuses connections"):
            await until_refused(shell)
        assert not shell.barred
    finally:
        sshd.start("key")
    await shell.connect()
    assert await out(await shell.start(["echo", "back"])) == "back"


async def until_refused(shell: SshShell) -> None:
    for _ in range(1000):
        await shell.connect()
        await asyncio.sleep(0.05)


async def test_a_cut_ends_what_was_started(sshd, shell):
    await shell.connect()
    process = await shell.start(["sleep", "60"])
    sshd.kill_connections("key")
    assert await asyncio.wait_for(process.wait(), programs.PATIENCE) == 255
    await shell.connect()
    assert await out(await shell.start(["echo", "anew"])) == "anew"


async def test_settings_that_cannot_be_read(tmp_path):
    with pytest.raises(errors.ConfigError, match="cannot be read"):
        await SshShell("bed", "key", tmp_path, settings=str(tmp_path / "none")).connect()
    (tmp_path / "bad").write_text("Frobnicate yes\n")
    with pytest.raises(errors.ConfigError, match=r"(?i)frobnicate"):
        await SshShell("bed", "key", tmp_path, settings=str(tmp_path / "bad")).connect()


async def test_no_more_programs_than_the_server_allows(sshd, narrow, tmp_path, shells):
    shell = SshShell("bed", "narrow", tmp_path, settings=str(sshd.config))
    shells.append(shell)
    await shell.connect()
    two = [await shell.start(["cat"]) for _ in range(2)]
    with pytest.raises(errors.Denied, match="no more programs"):
        await shell.start(["true"])
    await two[0].communicate(b"")
    for _ in range(600):
        try:
            third = await shell.start(["echo", "room"])
        except errors.Denied:
            await asyncio.sleep(0.1)
        else:
            break
    assert await out(third) == "room"
    await two[1].communicate(b"")


async def test_a_connection_that_hangs_is_noticed_and_replaced(sshd, shell, monkeypatch):
    settings = ssh._SETTINGS
    monkeypatch.setattr(ssh, "_SETTINGS", settings.replace("AliveInterval 15", "AliveInterval 1"))
    assert settings != ssh._SETTINGS
    await shell.connect()
    process = await shell.start(["sleep", "600"])
    frozen = [each.pid for each in sshd.servers["key"]._connections()]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        # Three unanswered questions.
        assert await asyncio.wait_for(process.wait(), programs.PATIENCE) == 255
        await shell.connect()
        assert await out(await shell.start(["echo", "anew"])) == "anew"
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGKILL)


# -- words and ports -----------------------------------------------------------------------------


async def test_words_arrive_as_they_are(shell):
    await shell.connect()
    words = ["a b", "$HOME", "it's", "*", "", 'q"q', "new\nline", "back\\slash", "ümlaut", ";true"]
    process = await shell.start(["python3", "-c", "import sys; print(sys.argv[1:])", *words])
    assert await out(process) == repr(words)


async def test_what_a_program_complains_of_is_apart_from_what_ssh_does(shell):
    await shell.connect()
    process = await shell.start(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert await process.communicate() == (b"out\n", b"err\n")
    assert process.returncode == 3


async def test_a_port_there_leads_to_one_here_and_is_taken_back(sshd, shell):
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello\n")
        writer.close()

    await shell.connect()
    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        there = await shell.forward(port)
        assert await shell.forward(port) == there
        text = f"import socket; print(socket.create_connection(('127.0.0.1', {there})).recv(9))"
        process = await shell.start(["python3", "-c", text])
        assert await out(process) == repr(b"hello\n")
        await shell.close()
        process = await shell.start(["python3", "-c", text])
        _, err = await process.communicate()
        assert b"refused" in err
        assert await shell.alive(), "the connection stays"


async def test_a_long_path_of_the_project_is_no_obstacle(sshd, tmp_path, shells, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    deep = tmp_path / ("d" * 90) / "with space"
    shell = SshShell("bed", "key", deep, settings=str(sshd.config))
    shells.append(shell)
    await shell.connect()
    assert len(shell.files.socket) < 108
    assert await out(await shell.start(["echo", "in"])) == "in"


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert list(tmp_path.rglob("log-*")) == []
