"""A login node behind OpenSSH: one persistent connection, and programs over it.

The connection is an `ssh` of its own in the background, which other calls of `ssh` find by a
socket. So a one-time code is given once, even if this process restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import re
import shlex
import socket
import subprocess
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Self

import msgspec

from pilotage.base import durable, errors
from pilotage.batch.shell import words
from pilotage.batch.shell.model import BUFFER
from pilotage.batch.shell.words import ConnectionTrouble, TroubleKind

#: How long an idle connection stays that was made without a person.
_STAY = "10m"
_CHECK_S = 5.0
_CONNECT_S = 60.0
_START_S = 30.0
_LOCK_S = 20.0
_LOCK_PAUSE_S = 0.1


class SshShell:
    """A shell on a login node."""

    def __init__(self, name: str, host: str, state: Path, *, settings: str = "") -> None:
        """Name the site and its host; `settings` is a file of `ssh`, else the user's own."""
        self.name = name
        self.host = host
        self.files = SshFiles(state, host, settings)
        self._trouble: ConnectionTrouble | None = None
        self._forwarded: set[int] = set()

    @property
    def barred(self) -> bool:
        """Whether trying again is of no use before a person has done something."""
        return self._trouble is not None and self._trouble.kind in words.BARRED

    # -- the connection --------------------------------------------------------------------------

    async def connect(self) -> None:
        """Use the present connection, or make a new one without asking questions."""
        async with self._alone():
            if not await self.alive():
                await self._open()
        self._trouble = None
        self.files.note(None)

    async def _open(self) -> None:
        self.files.clear()
        status, said = await _said(self._master(attended=False, stay=_STAY))
        if status == 0 and await self.alive():
            return
        self._trouble = words.understand(said, self.host, self.name)
        if self._trouble.kind in (TroubleKind.CLOSED, TroubleKind.OTHER):
            # `ssh` does not show what a jump host's says if the connection is to stay.
            _, said = await _said(self._glance())
            self._trouble = words.understand(said, self.host, self.name)
        self.files.note(self._trouble)
        raise self._trouble.error()

    def login(self, stay: str) -> None:
        """Open the connection at the terminal, where `ssh` asks for what it needs."""
        with self.files.locking() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.files.clear()
            try:
                status = subprocess.run(self._master(attended=True, stay=stay), check=False)
            except FileNotFoundError:
                raise _no_ssh() from None
        if status.returncode:
            message = f"not logged in to {self.host}"
            raise errors.Unavailable(message, hint="what `ssh` wrote says why")
        self.files.note(None)

    async def logout(self) -> bool:
        """End the connection; return whether there was one."""
        async with self._alone():
            there = await self.alive()
            if there:
                await self._control("exit")
            self.files.clear()
        return there

    async def alive(self) -> bool:
        """Return whether there is a connection, without making one."""
        if not self.files.occupied():
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
        with SshLog(self.files.fifo()) as log:
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
        settings = self.files.settings(attended=attended)
        options = [f"ControlPersist={stay}", "RemoteCommand=none", "ClearAllForwardings=yes"]
        options += [] if attended else ["LogLevel=ERROR"]
        given = [word for option in options for word in ("-o", option)]
        return [
            "ssh", "-F", settings, "-M", "-S", self.files.socket, "-N", "-f", "-T", *given,
            "--", self.host,
        ]  # fmt: skip

    def _glance(self) -> list[str]:
        """Write the call that logs in and leaves at once."""
        settings = self.files.settings(attended=False)
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
        return ["ssh", "-F", "/dev/null", "-S", self.files.socket, "-T", "-e", "none", *given]

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
        with self.files.locking() as lock:
            left = _LOCK_S
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if left <= 0:
                        raise errors.Unavailable(f"a login to {self.host} is under way") from None
                left -= _LOCK_PAUSE_S
                await asyncio.sleep(_LOCK_PAUSE_S)
            yield


async def _said(command: list[str]) -> tuple[int, str]:
    """Run a non-interactive `ssh`; return its status and its complaints."""
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


_GLANCE_S = 0.05


class SshLog:
    """A named pipe with the log of `ssh`, read until it says enough."""

    def __init__(self, path: str) -> None:
        """Take a pipe that is there; it is gone at the end."""
        self.path = path
        self.text = ""

    def __enter__(self) -> Self:
        # Also for writing, so that it has no end before the other side has opened it.
        self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._fd, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        os.unlink(self.path)

    async def says(self, sign: str, process: Process, patience: float) -> bool:
        """Wait for a message; return False if the process ends, or is silent for too long."""
        try:
            async with asyncio.timeout(patience):
                # `Process.wait` would wait for its pipes, too, which others may hold open.
                while sign not in self.text and process.returncode is None:
                    self._news.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._news.wait(), _GLANCE_S)
        except TimeoutError:
            self.text += "\nConnection timed out"
            return False
        self._read()
        return sign in self.text

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.text += os.read(self._fd, 1 << 16).decode(errors="replace")
        self._news.set()


#: The kernel takes 107 bytes; `ssh` adds 17 to the name while it makes the socket.
_LONGEST = 107 - 17
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]+")

#: Holds for jump hosts, too: `ssh` hands its settings file on, but not its options.
_SETTINGS = """\
Host *
    StrictHostKeyChecking {check}
    BatchMode {batch}
    ForwardAgent no
    ForwardX11 no
    PermitLocalCommand no
    ServerAliveInterval 15
    ServerAliveCountMax 3
    ConnectTimeout 20
{include}
"""


class SshFiles:
    """The files of one connection."""

    def __init__(self, state: Path, host: str, settings: str) -> None:
        """Take the folder that they are in, the host and the user's settings file."""
        # A home directory may be shared by machines, a socket cannot.
        told = "\0".join((str(state), host, settings, socket.gethostname()))
        stem = hashlib.sha256(told.encode()).hexdigest()[:12]
        folder = _folder(state, f"{stem}.sock")
        self.socket = str(folder / f"{stem}.sock")
        self._note = folder / f"{stem}.json"
        self._stem = folder / stem
        self._user = settings

    def settings(self, *, attended: bool) -> str:
        """Write the settings of a connection, and return their file."""
        files = [os.path.expanduser(self._user)] if self._user else []
        files = files or [os.path.expanduser("~/.ssh/config"), "/etc/ssh/ssh_config"]
        for file in files:
            if self._user and not os.access(file, os.R_OK):
                message = f"`ssh_config` is `{file}`, which cannot be read"
                raise errors.ConfigError(message)
        wanted = _SETTINGS.format(
            check="ask" if attended else "yes",
            batch="no" if attended else "yes",
            include="\n".join(f'Include "{file}"' for file in files),
        )
        target = self._stem.with_suffix(".attended" if attended else ".conf")
        if not target.exists() or target.read_text() != wanted:
            durable.swap(target, wanted)
        return str(target)

    def occupied(self) -> bool:
        """Return whether there is a socket, be it a dead one."""
        return os.path.exists(self.socket)

    def clear(self) -> None:
        """Take a dead connection's socket away: `ssh` would go on without one beside it."""
        Path(self.socket).unlink(missing_ok=True)

    def locking(self) -> BinaryIO:
        """Open the file whose lock lets one process at a time make or end the connection."""
        return open(self._stem.with_suffix(".lock"), "ab")

    def fifo(self) -> str:
        """Make a pipe with a name."""
        path = tempfile.mktemp(prefix="log-", dir=self._stem.parent)  # noqa: S306 - mkfifo is exclusive
        os.mkfifo(path, 0o600)
        return path

    def note(self, trouble: ConnectionTrouble | None) -> None:
        """Keep why there is no connection, for later questions."""
        if trouble is None:
            self._note.unlink(missing_ok=True)
        else:
            self._note.write_bytes(msgspec.json.encode(trouble))

    def trouble(self) -> ConnectionTrouble | None:
        """Read why there was no connection at the last try."""
        try:
            return msgspec.json.decode(self._note.read_bytes(), type=ConnectionTrouble)
        except (OSError, msgspec.DecodeError):
            return None


def _folder(state: Path, name: str) -> Path:
    """Return the first folder of ours in which a socket can be."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    wanted = [state / "ssh", Path(tempfile.gettempdir()) / f"pilotage-{os.getuid()}"]
    if runtime:
        wanted.insert(1, Path(runtime) / "pilotage")
    for folder in wanted:
        path = str(folder / name)
        if len(os.fsencode(path)) <= _LONGEST and _PLAIN.fullmatch(path) and _ours(folder):
            return folder
    message = f"no folder for the socket of a connection: none of {', '.join(map(str, wanted))}"
    raise errors.Unavailable(message, hint="it must be yours alone, and its path short")


def _ours(folder: Path) -> bool:
    """Make a private folder; return whether sockets can be there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.lstat()
        if facts.st_uid != os.getuid() or facts.st_mode & 0o170077 != 0o040000:
            return False
        probe = tempfile.mktemp(prefix="probe-", dir=folder)  # noqa: S306 - bind is exclusive
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(probe)
        os.unlink(probe)
    except OSError:
        return False
    return True
