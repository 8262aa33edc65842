"""The process beside a sandbox that cannot be killed from outside.

It is what the starter started, so it takes the signals: a polite one goes to the payload, and
SIGUSR2 means to kill it. It ends after everything that it started, with the payload's exit code.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from . import reach
from .box import Wrapped
from .program import running
from .rule import GATEKEEPER


def furnish(home: str, request: dict[str, Any]) -> None:
    """Put there what was asked for."""
    # Those in a container's user namespace must be able to go through, but not to look.
    os.chmod(home, 0o711)  # noqa: S103 - as said
    for name, text in request.get("files", {}).items():
        fd = os.open(f"{home}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
    root = f"{home}/root"
    os.makedirs(root)
    for path in request.get("folders", ()):
        os.makedirs(f"{root}/{path}", exist_ok=True)
        if path in ("tmp", "var/tmp"):
            # What is mounted there gets the same mode.
            os.chmod(f"{root}/{path}", 0o1777)  # noqa: S103 - as such folders have
    for path in request.get("empty", ()):
        os.makedirs(os.path.dirname(f"{root}/{path}"), exist_ok=True)
        os.close(os.open(f"{root}/{path}", os.O_WRONLY | os.O_CREAT, 0o644))
    for path, target in request.get("links", {}).items():
        os.symlink(target, f"{root}{path}")


def clear(home: str, request: dict[str, Any]) -> None:
    """Remove what was put there, by name: what else may be there is not ours, so it stays."""
    root = f"{home}/root"
    files = [f"{home}/{name}" for name in request.get("files", {})]
    files += [f"{root}/{path}" for path in request.get("empty", ())]
    files += [f"{root}{path}" for path in request.get("links", {})]
    folders = {home, root}
    for path in (*(f"{root}/{path}" for path in request.get("folders", ())), *files):
        while len(path) > len(root):
            folders.add(path)
            path = os.path.dirname(path)  # noqa: PLW2901 - goes up
    for path in files:
        with contextlib.suppress(OSError):
            os.unlink(path)
    for path in sorted(folders, key=len, reverse=True):
        with contextlib.suppress(OSError):
            os.rmdir(path)


_LISTED = re.compile(re.escape(GATEKEEPER) + r" run ([a-z_][a-z0-9_-]*)")


def users() -> list[str]:
    """List the users that a sudo rule lets us run payloads as."""
    theirs, ours = os.pipe()
    actions = [
        (os.POSIX_SPAWN_DUP2, ours, 1),
        (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0),
    ]
    try:
        pid = os.posix_spawnp("sudo", ["sudo", "-n", "-l"], os.environ, file_actions=actions)
    finally:
        os.close(ours)
    with open(theirs, encoding="utf-8", errors="replace") as file:
        # Lines are broken between words.
        text = " ".join(file.read().split())
    os.waitpid(pid, 0)
    return _LISTED.findall(text)


def take(names: list[str] | None = None) -> str:
    """Choose a user that no other payload of ours has, and hold it until this process ends."""
    home = f"/tmp/pilotage-users-{os.getuid()}"  # noqa: S108 - checked below
    os.makedirs(home, mode=0o700, exist_ok=True)
    what = os.lstat(home)
    if what.st_uid != os.getuid() or not stat.S_ISDIR(what.st_mode):
        sys.exit(f"{home} is not ours")
    for name in users() if names is None else names:
        fd = os.open(f"{home}/{name}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return name
        except BlockingIOError:
            os.close(fd)
    sys.exit("no user left to run it as: name more of them in the sudo rule")


#: Stands for the keeper's own folder in what it is asked to run.
HOME = "{keeper}"
#: Stands for a user that no other payload has.
USER = "{user}"

_HANDED = 3
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLITE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_HEARD = {*_POLITE, reach.KILL, signal.SIGCHLD}
_LOOK_SECONDS = 0.05
#: How long what is around a dead payload may take to end.
_PATIENCE_SECONDS = 5.0


def kept(request: dict[str, Any], env: dict[str, str]) -> Wrapped:
    """Have a keeper carry out a request."""
    return Wrapped(running("keeper"), env, json.dumps(request).encode())


class Keeper:
    """State of the sandbox, and what is to be done with it."""

    def __init__(self, request: dict[str, Any], home: str) -> None:
        self._request = request
        self._home = home
        self._line = -1
        self._child = -1
        self._code: int | None = None
        #: A polite signal that no process inside has got yet.
        self._asked = 0
        self._killed = 0.0
        #: Whether something inside was killed.
        self._hit = False

    def begin(self) -> None:
        """Start what makes the sandbox."""
        argv = [self._filled(word) for word in self._request["argv"]]
        # What is not ours to word may hold anything.
        argv += self._request.get("rest", ())
        actions: list[tuple[Any, ...]] = []
        if told := self._request.get("told"):
            theirs, self._line = os.pipe()
            os.set_inheritable(theirs, True)
            actions = [(os.POSIX_SPAWN_DUP2, theirs, 0), (os.POSIX_SPAWN_CLOSE, theirs)]
        self._child = os.posix_spawnp(
            argv[0], argv, os.environ, file_actions=actions, setsigmask=()
        )
        if told:
            os.close(theirs)
            self._tell(told)

    def _filled(self, word: str) -> str:
        if self._request["kind"] == "user" and word == USER:
            return take()
        return word.replace(HOME, self._home, 1) if word.startswith(HOME) else word

    def hear(self, number: int) -> None:
        """Note a signal."""
        if number == reach.KILL:
            self._killed = self._killed or time.monotonic()
        elif number in _POLITE:
            self._asked = number

    def step(self) -> None:
        """Do what is to be done now."""
        self._collect()
        if self._asked and (self._tell("term") or reach.ask(os.getpid(), self._asked)):
            self._asked = 0
        if self._killed and not self.over and not self._tell("kill"):
            self._hit = reach.kill_inits(os.getpid()) or self._hit
            late = time.monotonic() > self._killed + _PATIENCE_SECONDS
            if late or not self._hit:
                # Nothing is inside yet, so what is about to make it is ended.
                os.kill(self._child, signal.SIGKILL)

    @property
    def busy(self) -> bool:
        """Return whether there is something to do that no signal tells of."""
        return bool(self._asked or self._killed)

    @property
    def over(self) -> bool:
        """Return whether what makes the sandbox has ended."""
        return self._code is not None

    def end(self) -> int:
        """Wait for all that it left, and return the exit code of the payload."""
        if last := self._request.get("last"):
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while self._collect() and _monitored() and time.monotonic() < deadline:
                time.sleep(0.002)
            if self._killed:
                reach.kill_inits(os.getpid())
                os.waitpid(os.posix_spawnp(last[0], last, os.environ, file_actions=_SILENT), 0)
        code = self._code or 0
        return 128 - code if code < 0 else code

    def _collect(self) -> bool:
        """Collect what has ended; return whether something has not."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._child:
                    self._code = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            return False

    def _tell(self, text: str) -> bool:
        """Send a line to the gatekeeper, if there is one."""
        if self._line < 0:
            return False
        with contextlib.suppress(BrokenPipeError):
            data = text.encode() + b"\n"
            while data:
                data = data[os.write(self._line, data) :]
        return True


_SILENT = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0), (os.POSIX_SPAWN_DUP2, 1, 2)]


def _monitored() -> bool:
    """Return whether the monitor of a container is here, or the command that it becomes."""
    for pid in reach.descendants(os.getpid()):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
            if words[0].endswith(b"conmon") or b"cleanup" in words:
                return True
    return False


def main(_argv: Sequence[str]) -> None:
    """Carry out the request in the open file number 3."""
    with open(_HANDED, "rb") as file:
        request = json.load(file)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, reach.KILL, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    os.umask(0o022)
    home = tempfile.mkdtemp(prefix="pilotage-keeper-")
    try:
        furnish(home, request)
        keeper = Keeper(request, home)
        keeper.begin()
        while not keeper.over:
            heard = signal.sigtimedwait(_HEARD, _LOOK_SECONDS if keeper.busy else 3600)
            if heard is not None:
                keeper.hear(heard.si_signo)
            keeper.step()
        code = keeper.end()
    finally:
        clear(home, request)
    sys.exit(code)
