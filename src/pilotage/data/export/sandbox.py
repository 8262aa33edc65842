"""The sandbox of one export: its mounts, and the `sshd` processes in it.

Bubblewrap makes the namespaces once, before any client connects, so that nothing a client does with
links or names can influence what is mounted. In them there are the folder of the job, its inputs
mounted read-only, `sshd` with its libraries, and no network. A connection is served by an `sshd -i`
that enters these namespaces; it runs the SFTP server in its own process, and no other program.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import BinaryIO, Self

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from pilotage.base import errors

from .folder import Layout
from .model import HOST, USER, ExportLimits

#: Where the folder of the job is in the sandbox.
_DATA = "/data"
_ETC = "/etc/export"
_ID = "1000"
#: Programs that are not for users to call are not on every PATH.
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", "/usr/bin"))
#: Since 9.8 `sshd` is several programs.
_PARTS = [
    f"{folder}/sshd-{part}"
    for folder in ("/usr/lib/openssh", "/usr/libexec/openssh", "/usr/lib/ssh", "/usr/libexec")
    for part in ("session", "auth")
]
_LIBRARY = re.compile(r"(/\S+) \(0x")
_START_SECONDS = 60.0
_WORDS = 2000
_HINT = (
    "install bubblewrap, openssh-server and openssh-client, and allow user namespaces; "
    'or write `data = "staged"`'
)

_CONFIG = f"""\
AllowUsers {USER}
AuthenticationMethods publickey
AuthorizedKeysFile {_ETC}/authorized_keys
ClientAliveCountMax 4
ClientAliveInterval 30
Compression no
DisableForwarding yes
ForceCommand internal-sftp -d {_DATA} -P copy-data
HostKey {_ETC}/host_key
KbdInteractiveAuthentication no
LogLevel ERROR
LoginGraceTime 20
MaxAuthTries 3
MaxSessions 4
PasswordAuthentication no
PermitTTY no
PermitUserEnvironment no
PermitUserRC no
PidFile none
PrintLastLog no
PrintMotd no
StrictModes no
Subsystem sftp internal-sftp
UseDNS no
UsePAM no
"""


class Programs(msgspec.Struct, frozen=True):
    """Programs of this machine that serve an export."""

    bwrap: str
    sshd: str
    keygen: str
    nsenter: str
    prlimit: str
    nice: str
    ldd: str
    #: It waits in the sandbox for as long as that is needed.
    cat: str

    @classmethod
    def find(cls) -> Self:
        """Find all of them; raises `Unavailable` with the names of those that are missing."""
        names = {one: one for one in cls.__struct_fields__} | {"keygen": "ssh-keygen"}
        found = {field: shutil.which(name, path=_PATH) for field, name in names.items()}
        missing = ", ".join(names[field] for field, path in found.items() if path is None)
        if missing:
            raise errors.Unavailable(f"mounted data needs {missing} on this machine", hint=_HINT)
        return msgspec.convert(found, cls)

    def inside(self) -> list[str]:
        """List the files that the sandbox needs: two programs and their libraries."""
        programs = [self.sshd, self.cat, *filter(os.path.exists, _PARTS)]
        said = subprocess.run([self.ldd, *programs], capture_output=True, text=True, check=False)
        return sorted({*programs, *_LIBRARY.findall(said.stdout)})


class ExportKeys(msgspec.Struct, frozen=True):
    """The keys of one export, made for it alone."""

    host: str
    #: The line of a `known_hosts` file.
    known: str
    client: str
    authorized: str

    @classmethod
    def make(cls, keygen: str) -> Self:
        """Make two pairs of keys."""
        with tempfile.TemporaryDirectory(prefix="pilotage-keys-") as folder:
            made = {}
            for name in ("host", "client"):
                argv = [keygen, "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", f"{folder}/{name}"]
                subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True)
                made[name] = Path(folder, name).read_text("ascii")
                made[f"{name}.pub"] = Path(folder, f"{name}.pub").read_text("ascii").strip()
        return cls(
            host=made["host"],
            known=f"{HOST} {made['host.pub']}",
            client=made["client"],
            # Options beside those of the settings: all that a key could be allowed is not.
            authorized=f"restrict {made['client.pub']}\n",
        )


class ExportSandbox:
    """Namespaces of one export; everything in them ends with `stop` or with this process."""

    def __init__(self, programs: Programs, bounds: ExportLimits) -> None:
        self._programs = programs
        self._bounds = bounds
        self._process: anyio.abc.Process | None = None
        self._init = 0
        self._handle = -1
        self._line: socket.socket | None = None

    async def start(self, layout: Layout, keys: ExportKeys) -> None:
        """Make the namespaces; raises `Unavailable` if this machine does not allow that."""
        programs = self._programs
        inside = await anyio.to_thread.run_sync(programs.inside)
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as stack:
            stack.enter_context(ours)
            stack.enter_context(theirs)
            info, said = (stack.enter_context(_memory()) for _ in range(2))
            argv = options(inside, layout)
            given = [info.fileno()]
            for path, text in files(programs, keys).items():
                given.append(stack.enter_context(_memory(text.encode())).fileno())
                argv += ["--perms", "0600", "--ro-bind-data", str(given[-1]), path]
            # It is in memory and has no size, so it must not be written to.
            argv += ["--remount-ro", "/", "--chdir", "/", "--info-fd", str(info.fileno())]
            given.append(stack.enter_context(_memory(os.fsencode("\0".join([*argv, ""])))).fileno())
            self._process = await anyio.open_process(
                [programs.bwrap, "--args", str(given[-1]), "--", programs.cat],
                stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=said.fileno(),
                cwd="/", env={}, start_new_session=True, pass_fds=given,
            )  # fmt: skip
            theirs.close()
            try:
                with anyio.move_on_after(_START_SECONDS) as patience:
                    await self._begin(ours, info, said)
                if patience.cancelled_caught:
                    raise _refused(said)
                self._line = ours.dup()
            finally:
                if self._line is None:
                    with anyio.CancelScope(shield=True):
                        await self.stop()

    async def _begin(self, line: socket.socket, info: BinaryIO, said: BinaryIO) -> None:
        """Wait until the program inside answers, when all is mounted; have `sshd` check itself."""
        line.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(line, b".")
            answer = await loop.sock_recv(line, 1)
        except OSError:
            answer = b""
        if not answer:
            raise _refused(said)
        self._init = int(json.loads(_text(info))["child-pid"])
        self._handle = os.pidfd_open(self._init)
        tried = await anyio.open_process(
            [*self._entering(), self._programs.sshd, "-t", "-f", f"{_ETC}/config"],
            stdin=subprocess.DEVNULL, stdout=said.fileno(), stderr=said.fileno(), cwd="/", env={},
        )  # fmt: skip
        async with tried:
            if await tried.wait():
                raise _refused(said)

    def _entering(self) -> list[str]:
        """Return the beginning of a command that is to run inside, with its limits."""
        programs, bounds = self._programs, self._bounds
        limits = [f"--nofile={bounds.handles}", f"--fsize={bounds.size}", "--core=0"]
        spaces = ["--user", "--mount", "--pid", "--net", "--ipc", "--uts", "--wd=/"]
        return [
            *(programs.nice, "-n", "5", programs.prlimit, *limits, "--"),
            *(programs.nsenter, "--target", str(self._init), *spaces, "--preserve-credentials"),
            "--",
        ]

    async def serve(self, connection: socket.socket) -> anyio.abc.Process:
        """Serve a connection by a process of its own in the sandbox."""
        if self._handle < 0:
            raise ProcessLookupError(errno.ESRCH, "the sandbox has ended")
        argv = [*self._entering(), self._programs.sshd, "-i", "-e", "-f", f"{_ETC}/config"]
        return await anyio.open_process(
            argv,
            stdin=connection.fileno(),
            stdout=connection.fileno(),
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            # Not ended by what is typed at the terminal of the hub.
            start_new_session=True,
        )

    async def stop(self) -> None:
        """End every process in the sandbox; nothing is read or written any more afterwards."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.kill()
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            try:
                # The kernel reports the end of the first process after that of all others.
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                await anyio.wait_readable(handle)
            except ProcessLookupError:
                pass
            finally:
                os.close(handle)
        await self._process.aclose()
        if self._line is not None:
            self._line.close()


def _refused(said: BinaryIO) -> errors.Unavailable:
    words = " ".join(_text(said).split()) or "bubblewrap gave no reason"
    message = f"this machine allows no sandbox for mounted data: {words}"
    return errors.Unavailable(message, hint=_HINT)


def options(inside: list[str], layout: Layout) -> list[str]:
    """List the options of bubblewrap, but for the files that are handed over."""
    made = ["--unshare-all", "--unshare-user", "--uid", _ID, "--gid", _ID, "--cap-drop", "ALL"]
    made += ["--die-with-parent", "--new-session", "--clearenv", "--hostname", HOST]
    for path in inside:
        made += ["--ro-bind", path, path]
    # `sshd` opens it for streams that it does not use.
    made += ["--dev-bind", "/dev/null", "/dev/null"]
    made += ["--bind", str(layout.folder), _DATA]
    for name, source in layout.inputs.items():
        made += ["--ro-bind", str(source), f"{_DATA}/{name}"]
    return made


def files(programs: Programs, keys: ExportKeys) -> dict[str, str]:
    """Return the files that are made for a sandbox, by path."""
    return {
        # The shell must be a program that exists; it is not started.
        "/etc/passwd": f"{USER}:x:{_ID}:{_ID}::{_DATA}:{programs.sshd}\n",
        "/etc/group": f"{USER}:x:{_ID}:\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\n",
        f"{_ETC}/config": _CONFIG,
        f"{_ETC}/host_key": keys.host,
        f"{_ETC}/authorized_keys": keys.authorized,
    }


def _memory(data: bytes = b"") -> BinaryIO:
    """Make a file in memory, which only the program that it is given to can open."""
    file = open(os.memfd_create("export"), "w+b", buffering=0)  # noqa: SIM115 - the caller closes it
    file.write(data)
    file.seek(0)
    return file


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read(_WORDS).decode("utf-8", "replace")
