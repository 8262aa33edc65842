"""Run commands of the site: an argv, never a shell, with a time limit."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import Any

from . import files
from .files import RequestError

#: Bytes of what a command says that are passed on.
MOST_OUT = 64 << 20
MOST_ERR = 64 << 10

_BULK = 1 << 16
_TIMEOUT_S = 60.0
#: For so long a command that has ended may have children that hold its output open.
_LINGER_S = 0.5
_GLANCE_S = 0.05
#: What commands that run when the hub goes may take to end.
_LEAVE_S = 1.0


class Commands:
    """Those that run now, and those that go on by themselves."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._turn = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._detached: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def run(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Run a command to its end and tell what it said."""
        argv = [str(word) for word in asked["argv"]]
        if not argv:
            raise RequestError("usage", "there is no command")
        folder = self._folder(asked)
        if asked.get("detach"):
            return self._detach(argv, asked, folder)
        data = str(asked.get("input") or "").encode("utf-8", "surrogateescape")
        process = self._begin(
            argv,
            asked,
            cwd=folder,
            stdin=subprocess.PIPE if data else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            exchange = _Exchange(process, data)
            late = not exchange.run(time.monotonic() + float(asked.get("timeout") or _TIMEOUT_S))
        finally:
            ended = _end(process)
            with self._turn:
                self._running.discard(process)
                if not ended:
                    self._detached.add(process)
        if exchange.overflown:
            raise RequestError("other", f"{argv[0]} said more than {MOST_OUT} bytes")
        # What we killed may have done its work already.
        late = late or self._closed
        out, err = (bytes(one).decode("utf-8", "replace") for one in exchange.said)
        code = -1 if late else int(process.returncode)
        return {"exit": code, "out": out, "err": err, "late": late}

    def _folder(self, asked: Mapping[str, Any]) -> str:
        return files.inside(self._root, asked["folder"]) if asked.get("folder") else self._root

    def _detach(self, argv: list[str], asked: Mapping[str, Any], folder: str) -> dict[str, Any]:
        """Start a command that outlives us, in a session of its own."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        said = os.open(os.path.join(folder, "out.step"), flags, 0o600)
        try:
            process = self._begin(
                argv, asked, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
        finally:
            os.close(said)
        with self._turn:
            self._running.discard(process)
            self._detached.add(process)
        return {"exit": 0, "out": str(process.pid), "err": "", "late": False}

    def _begin(
        self,
        argv: list[str],
        asked: Mapping[str, Any],
        **streams: Any,  # noqa: ANN401 - as Popen has them
    ) -> subprocess.Popen[bytes]:
        env = _environment(asked)
        with self._turn:
            if self._closed:
                raise RequestError("other", "the hub has gone")
            try:
                process = subprocess.Popen(argv, env=env, start_new_session=True, **streams)
            except FileNotFoundError as error:
                if error.filename == streams["cwd"]:
                    raise
                where = "" if "/" in argv[0] else f" in {env.get('PATH', '')}"
                raise RequestError("missing", f"there is no program {argv[0]}{where}") from error
            self._running.add(process)
            return process

    def collect(self) -> None:
        """Forget commands that have ended by themselves."""
        with self._turn:
            self._detached = {one for one in self._detached if one.poll() is None}

    def close(self) -> None:
        """End what runs, but not what was to go on by itself."""
        with self._turn:
            self._closed = True
            left = list(self._running)
        for one in left:
            _signal(one, signal.SIGTERM)
        deadline = time.monotonic() + _LEAVE_S
        while any(one.poll() is None for one in left) and time.monotonic() < deadline:
            time.sleep(_GLANCE_S)
        for one in left:
            _signal(one, signal.SIGKILL)


class _Exchange:
    """Input and output of a command."""

    def __init__(self, process: subprocess.Popen[bytes], data: bytes) -> None:
        #: What it wrote to both of its streams, as far as that is kept.
        self.said = (bytearray(), bytearray())
        self.overflown = False
        self._process = process
        self._data = memoryview(data)
        self._poll = select.poll()
        self._open = {}
        for at, pipe in enumerate((process.stdout, process.stderr)):
            if pipe is not None:
                self._open[pipe.fileno()] = at
                self._poll.register(pipe, select.POLLIN)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            self._poll.register(process.stdin, select.POLLOUT)

    def run(self, deadline: float) -> bool:
        """Go on until the command has ended; return whether it did in time."""
        quiet: float | None = None
        while self._open and not self.overflown:
            now = time.monotonic()
            if now > deadline:
                return False
            if quiet is None and self._process.poll() is not None:
                quiet = now + _LINGER_S
            if quiet is not None and now > quiet:
                return True
            for fd, _ in self._poll.poll(_GLANCE_S * 1000):
                if fd in self._open:
                    self._hear(fd)
                else:
                    self._say(fd)
        if self.overflown:
            return True
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _hear(self, fd: int) -> None:
        data = os.read(fd, _BULK)
        at = self._open[fd]
        if not data:
            self._poll.unregister(fd)
            del self._open[fd]
        elif at == 0:
            self.said[0].extend(data)
            # A listing without its end would look like one in which jobs are missing.
            self.overflown = len(self.said[0]) > MOST_OUT
        else:
            self.said[1].extend(data[: MOST_ERR - len(self.said[1])])

    def _say(self, fd: int) -> None:
        try:
            self._data = self._data[os.write(fd, self._data[:_BULK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._data = self._data[:0]
        if not self._data and self._process.stdin is not None:
            self._poll.unregister(fd)
            self._process.stdin.close()


def _environment(asked: Mapping[str, Any]) -> dict[str, str]:
    given = {str(name): str(value) for name, value in (asked.get("env") or {}).items()}
    env = {**os.environ, **given}
    path = [str(one) for one in asked.get("path") or ()]
    env["PATH"] = ":".join([*path, env.get("PATH") or os.defpath])
    return env


def _end(process: subprocess.Popen[bytes]) -> bool:
    """Kill what has not ended, with all of its group; return whether it is collected."""
    ended = True
    if process.returncode is None:
        _signal(process, signal.SIGKILL)
        try:
            process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            # A dead file server holds it.
            ended = False
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    return ended


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    # Not collected, so its number means no other group.
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
