"""The starter as a process beside this one: no second interpreter, so jobs begin at once.

It stays in the session of the batch job, where schedulers look for what they are to end. It
listens before it is given its order, so it hears of our death whenever that comes, and then ends
the payload politely and leaves evidence in the attempt directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

from .. import beside, orphans
from .record import SENT, Signals

_BULK = 1 << 18
_LEAVE_S = 5.0
#: Within this time a signal to all processes of a job reaches us, too, in seconds.
_CROSSING_S = 1.0
_PR_SET_PDEATHSIG = 1
#: No session has this number.
_NO_SESSION = -1


class StarterError(Exception):
    """Nothing can be started."""


class Starter:
    """A child that runs one payload."""

    def __init__(self, env: Mapping[str, str], umask: int, signals: Signals, spare: str) -> None:
        #: Whether it was told to start something.
        self.ordered = False
        self._signals = signals
        self._lock = os.path.join(_local(spare), f"pilotage-{os.urandom(8).hex()}.lock")
        self._socket, theirs = socket.socketpair()
        self._inward = b""
        self._pid = os.fork()
        if not self._pid:
            self._be(theirs.detach(), env, umask)
        theirs.close()

    def run(self, launch: Mapping[str, Any]) -> dict[str, Any]:
        """Run a payload to its end, and return the report of it."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._signals.inner, select.POLLIN)
        told = False
        while True:
            poll.poll()
            if not self.ordered:
                self._signals.check()
            elif self._signals.heard() and not told:
                told = True
                poll.unregister(self._signals.inner)
                self._say({"op": "stop", "key": launch["key"], "message": self._signals.words()})
            lines = self._hear()
            if lines is None and not self.ordered:
                raise StarterError("its starter does not start")
            if lines is None:
                return self.bury(launch)
            for report in lines:
                if report["op"] == "ready":
                    self.ordered = True
                    self._say({**launch, "op": "start"})
                elif report["op"] == "ended":
                    return judged(report, self._signals)

    def leave(self, key: str) -> None:
        """Part from it; it need not keep the end, which is safe."""
        self._say({"op": "ack", "keys": [key]})
        self._socket.close()
        deadline = time.monotonic() + _LEAVE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                if not os.waitpid(self._pid, os.WNOHANG)[0]:
                    time.sleep(0.002)
                    continue
            return
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def _say(self, message: dict[str, Any]) -> None:
        if message["op"] == "stop":
            message = {"grace": None, **message}
        # If it is dead, that shows where its reports are read.
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _hear(self) -> list[dict[str, Any]] | None:
        """Take the reports that have arrived; nothing if there will be none."""
        try:
            data = self._socket.recv(_BULK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            return None
        *lines, self._inward = (self._inward + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def bury(self, launch: Mapping[str, Any]) -> dict[str, Any]:
        """End a starter and what it left behind; tell what is known of its payload."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        orphans.end(_NO_SESSION, self._lock)
        shutil.rmtree(f"{self._lock}.d", ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(self._lock)
        try:
            with open(os.path.join(launch["dir"], "exit.json"), encoding="utf-8") as file:
                found = json.load(file)
            if found["key"] == launch["key"]:
                return judged(dict(found), self._signals)
        except (OSError, ValueError, KeyError, TypeError):
            pass
        message = "its starter died, so how it ended is unknown"
        return judged(ending(launch["key"], "lost", message), self._signals)

    def _be(self, fd: int, env: Mapping[str, str], umask: int) -> None:
        """Run the starter, and never return."""
        code = 1
        try:
            self._signals.leave()
            os.umask(umask)
            os.environ.clear()
            os.environ.update(env)
            parent = os.getppid()
            program = beside.module("starter.program")
            program.ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
            if os.getppid() == parent:
                program.serve(fd, b"/", os.fsencode(self._lock), 1)
                code = 0
        except BaseException:  # noqa: BLE001 - a child of a fork must not go on as its parent
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)


def ending(key: str, reason: str, message: str) -> dict[str, Any]:
    """Report an end without a process."""
    facts = {"key": key, "time": time.time(), "exit": None, "signal": None}
    return {**facts, "reason": reason, "message": message, "usage": None}


def judged(report: dict[str, Any], signals: Signals) -> dict[str, Any]:
    """Mark an end as caused by the batch system, which may have signalled all processes."""
    report.pop("op", None)
    reason, code = report["reason"], report["exit"]
    # A shell exits with 128 and the number of the signal that ended what it ran.
    number = report["signal"] or (code or 0) - 128
    if reason == "stopped" or (reason in ("signalled", "exited") and number in SENT):
        # The signal that the payload got, or its starter, is on its way to us, too.
        signals.wait(_CROSSING_S)
    bad = reason in ("signalled", "stopped", "lost") or (reason == "exited" and code != 0)
    if bad and signals.heard():
        report.update(reason="stopped", message=signals.words())
    return report


def _local(spare: str) -> str:
    """Name a folder of this node; locks on network file systems may not work."""
    for folder in (os.environ.get("TMPDIR", ""), "/tmp", "/dev/shm"):  # noqa: S108 - names are random
        if folder and os.access(folder, os.W_OK | os.X_OK):
            return folder
    return spare
