"""A login node behind OpenSSH: one connection that outlives us, and programs by it.

The connection is an `ssh` of its own in the background, which other calls of `ssh` find by a
socket. So whoever gave a one-time code gives it once, whatever becomes of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shlex
import subprocess
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from pilotage.base import errors
from pilotage.batch.shell import words
from pilotage.batch.shell.log import Log
from pilotage.batch.shell.model import BUFFER
from pilotage.batch.shell.nest import Nest
from pilotage.batch.shell.words import Kind, Trouble

#: How long a connection stays that nobody uses, if no person was needed for it.
_STAY = "10m"
_CHECK_S = 5.0
_CONNECT_S = 60.0
_START_S = 30.0
_LOCK_S = 20.0
_LOCK_PAUSE_S = 0.1


class Ssh:
    """A shell on a login node."""

    def __init__(self, name: str, host: str, state: Path, *, settings: str = "") -> None:
        """Name the site and its host; `settings` is a file of `ssh`, else the user's own."""
        self.name = name
        self.host = host
        self.nest = Nest(state, host, settings)
        self._trouble: Trouble | None = None
        self._forwarded: set[int] = set()

    @property
    def barred(self) -> bool:
        """Whether trying again is of no use before a person has done something."""
        return self._trouble is not None and self._trouble.kind in words.BARRED

    # -- the connection --------------------------------------------------------------------------

    async def connect(self) -> None:
        """Have a connection: the one that is there, or a new one that asks nobody."""
        async with self._alone():
            if not await self.alive():
                await self._open()
        self._trouble = None
        self.nest.note(None)

    async def _open(self) -> None:
        self.nest.clear()
        status, said = await _said(self._master(attended=False, stay=_STAY))
        if status == 0 and await self.alive():
            return
        self._trouble = words.understand(said, self.host, self.name)
        if self._trouble.kind in (Kind.CLOSED, Kind.OTHER):
            # `ssh` does not show what a jump host's says if the connection is to stay.
            _, said = await _said(self._glance())
            self._trouble = words.understand(said, self.host, self.name)
        self.nest.note(self._trouble)
        raise self._trouble.error()

    def login(self, stay: str) -> None:
        """Open the connection at the terminal, where `ssh` asks for what it needs."""
        with self.nest.locking() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.nest.clear()
            try:
                status = subprocess.run(self._master(attended=True, stay=stay), check=False)
            except FileNotFoundError:
                raise _no_ssh() from None
        if status.returncode:
            message = f"not logged in to {self.host}"
            raise errors.Unavailable(message, hint="what `ssh` wrote says why")
        self.nest.note(None)

    async def logout(self) -> bool:
        """End the connection; say whether there was one."""
        async with self._alone():
            there = await self.alive()
            if there:
                await self._control("exit")
            self.nest.clear()
        return there

    async def alive(self) -> bool:
        """Say whether there is a connection, without making one."""
        if not self.nest.occupied():
            return False
        status, _, _ = await self._control("check")
        return status == 0

    async def close(self) -> None:
        """Take back the ports; the connection stays."""
        for port in self._forwarded:
            await self._control("cancel", "-R", f"127.0.0.1:0:127.0.0.1:{port}")
        self._forwarded.clear()

    # -- programs and ports by it ----------------------------------------------------------------

    async def start(
        self, argv: Sequence[str], *, stdin: int = PIPE, stdout: int = PIPE, stderr: int = PIPE
    ) -> Process:
        """Start a program at the login node, and return once it has been started."""
        with Log(self.nest.fifo()) as log:
            command = [*self._channel("DEBUG1"), "-E", log.path, "--", self.host, shlex.join(argv)]
            process = await _spawn(command, stdin=stdin, stdout=stdout, stderr=stderr)
            if await log.says("master session id", process, _START_S):
                return process
            said = log.text
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        raise words.understand(said, self.host, self.name).error()

    async def forward(self, port: int) -> int:
        """Return a port of the login node's loopback that leads to a port of this machine's."""
        way = f"127.0.0.1:0:127.0.0.1:{port}"
        status, out, err = await self._control("forward", "-R", way)
        if status or not out.strip().isdigit():
            message = f"{self.host} forwards no ports: {words.last(err) or 'no reason is given'}"
            raise errors.Unavailable(message, hint="`AllowTcpForwarding` of its SSH server")
        self._forwarded.add(port)
        return int(out)

    # -- how `ssh` is called ---------------------------------------------------------------------

    def _master(self, *, attended: bool, stay: str) -> list[str]:
        """Write the call that makes the connection and goes to the background."""
        settings = self.nest.settings(attended=attended)
        options = [f"ControlPersist={stay}", "RemoteCommand=none", "ClearAllForwardings=yes"]
        options += [] if attended else ["LogLevel=ERROR"]
        given = [word for option in options for word in ("-o", option)]
        return [
            "ssh", "-F", settings, "-M", "-S", self.nest.socket, "-N", "-f", "-T", *given,
            "--", self.host,
        ]  # fmt: skip

    def _glance(self) -> list[str]:
        """Write the call that logs in and leaves at once."""
        settings = self.nest.settings(attended=False)
        options = ("ControlPath=none", "RemoteCommand=none", "LogLevel=ERROR")
        given = [word for option in options for word in ("-o", option)]
        return ["ssh", "-F", settings, "-T", *given, "--", self.host, "exit"]

    def _channel(self, level: str) -> list[str]:
        """Write the call of something by the connection.

        Without one it must fail: `ssh` would rather open a second, with a second one-time code.
        The user's settings had their say when the connection was made.
        """
        options = ("ControlMaster=no", "BatchMode=yes", "ProxyCommand=false", f"LogLevel={level}")
        given = [word for option in options for word in ("-o", option)]
        return ["ssh", "-F", "/dev/null", "-S", self.nest.socket, "-T", "-e", "none", *given]

    async def _control(self, verb: str, *more: str) -> tuple[int, str, str]:
        command = [*self._channel("ERROR"), "-O", verb, *more, "--", self.host]
        process = await _spawn(command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
        with _killed_at_last(process):
            try:
                out, err = await asyncio.wait_for(process.communicate(), _CHECK_S)
            except TimeoutError:
                return -1, "", "the connection hangs"
        return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Let one process at a time make or end the connection."""
        with self.nest.locking() as lock:
            left = _LOCK_S
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if left <= 0:
                        raise errors.Unavailable(f"somebody logs in to {self.host}") from None
                left -= _LOCK_PAUSE_S
                await asyncio.sleep(_LOCK_PAUSE_S)
            yield


async def _said(command: list[str]) -> tuple[int, str]:
    """Run an `ssh` that nobody can answer; return its status and its complaints."""
    # Not a pipe: what goes to the background would hold it open.
    with tempfile.TemporaryFile() as log:
        process = await _spawn(
            command, stdin=DEVNULL, stdout=DEVNULL, stderr=log.fileno(),
            env=os.environ | {"SSH_ASKPASS_REQUIRE": "never"},
        )  # fmt: skip
        with _killed_at_last(process):
            try:
                status = await asyncio.wait_for(process.wait(), _CONNECT_S)
            except TimeoutError:
                return -1, "Connection timed out"
        log.seek(0)
        return status, log.read().decode(errors="replace")


async def _spawn(
    command: list[str], *, stdin: int, stdout: int, stderr: int, env: dict[str, str] | None = None
) -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, limit=BUFFER,
            start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        raise _no_ssh() from None


def _no_ssh() -> errors.PilotageError:
    message = "there is no `ssh` on this machine"
    return errors.Unavailable(message, hint="install OpenSSH's client")


@contextlib.contextmanager
def _killed_at_last(process: Process) -> Iterator[None]:
    try:
        yield
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
