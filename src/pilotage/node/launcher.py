"""The starter, a process that never had the secret, seen from the pilot; restarted if it dies."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Callable

from . import boxed, orphans, parts

_BULK = 1 << 18
_LEAVE_SECONDS = 15.0
#: Payloads must not outlive the pilot, whose lease is all that keeps others from starting them
#: again; SIGTERM lets the starter end them politely.
_BEGIN = """
import ctypes, runpy, sys
ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
_encode = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


class Launcher:
    """Orders go out, reports come in, neither side waits."""

    def __init__(
        self,
        work: str,
        env: Mapping[str, str],
        slots: int,
        umask: int,
        folders: boxed.Folders = boxed.NO_FOLDERS,
        devices: Iterable[str] = (),
    ) -> None:
        self._lock = os.path.join(work, f"starter-{uuid.uuid4().hex[:8]}.lock")
        self._env = env
        self._folders = folders
        self._programs = {os.path.join(work, name) for name in parts.FILES}
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        #: Whether the starter has died.
        self.gone = False
        #: Whether it must read before more can be sent.
        self.full = False
        self._inward = b""
        self._outward = bytearray()
        program = [sys.executable, "-I", "-S", "-c", _BEGIN, os.path.join(work, "starter")]
        options = ["--socket", "0", "--lock", self._lock, "--slots", str(slots)]
        options += ["--devices", ",".join(devices)]
        with theirs, open(f"{self._lock}.words", "wb") as words:
            # The folder above is ours alone; what payloads leave elsewhere is as the site wants it.
            self._process = subprocess.Popen(
                [*program, *options],
                stdin=theirs.fileno(),
                stdout=words,
                stderr=words,
                env=dict(env),
                umask=umask,
            )

    @property
    def pid(self) -> int:
        """Return the process that payloads come from."""
        return self._process.pid

    def start(self, launch: Mapping[str, Any]) -> None:
        """Order a payload to be started."""
        self._say({**self._complete(launch), "op": "start"})

    def _complete(self, launch: Mapping[str, Any]) -> dict[str, Any]:
        return boxed.complete(launch, self._env, self._programs, self._folders)

    def stop(self, key: str, message: str, grace: float | None) -> None:
        """Ask a payload to end, and have it killed after the grace time."""
        self._say({"op": "stop", "key": key, "message": message, "grace": grace})

    def acknowledge(self, keys: Iterable[str]) -> None:
        """Acknowledge ends."""
        self._say({"op": "ack", "keys": list(keys)})

    def _say(self, message: dict[str, Any]) -> None:
        self._outward += _encode(message).encode() + b"\n"

    def flush(self) -> None:
        """Send what the starter can take now."""
        self.full = False
        while self._outward and not self.gone:
            try:
                del self._outward[: self.socket.send(self._outward)]
            except BlockingIOError:
                self.full = True
                return
            except OSError:
                self.gone = True

    def receive(self) -> list[dict[str, Any]]:
        """Take the reports that have arrived."""
        try:
            data = self.socket.recv(_BULK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        self.gone = not data
        *lines, self._inward = (self._inward + data).split(b"\n")
        return [_report(line) for line in lines]

    def bury(self) -> str:
        """Kill what a dead starter left behind; return its last words."""
        # Until it is collected, its number can mean no other process and no other session.
        os.kill(self._process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        orphans.end(self._process.pid, self._lock)
        self._process.wait()
        self.socket.close()
        shutil.rmtree(f"{self._lock}.d", ignore_errors=True)
        with open(f"{self._lock}.words", encoding="utf-8", errors="replace") as file:
            return file.read()[-2000:].strip()

    def close(self) -> None:
        """Part from the starter; what it still runs is ended."""
        self._process.send_signal(signal.SIGTERM)
        self.socket.close()
        try:
            self._process.wait(_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            orphans.end(self._process.pid, self._lock)
            self._process.wait()


def _report(line: bytes) -> dict[str, Any]:
    """Read a report; what a function returned stays as it was written."""
    # No string of JSON holds this: its quotes would be escaped.
    head, found, result = line.partition(b',"result":')
    if not found:
        return dict(json.loads(line))
    return {**json.loads(head + b"}"), "result": result[:-1].decode("utf-8", "replace")}


_log = logging.getLogger("pilot")
#: So many starters in a row may die before one has run anything to its end.
_TRIES = 5


class StarterSupervisor:
    """Has payloads started; whatever was ordered comes back as an end."""

    def __init__(self, make: Callable[[], Launcher]) -> None:
        self._make = make
        self._deaths = 0
        self._launcher: Launcher | None = None

    @property
    def launcher(self) -> Launcher | None:
        """Return the starter that lives, if there is one."""
        return self._launcher

    @property
    def broken(self) -> bool:
        """Return whether there is no use in yet another starter."""
        return self._deaths >= _TRIES

    def start(self, launch: Mapping[str, Any]) -> None:
        """Have a payload started."""
        if self._launcher is None:
            self._launcher = self._make()
        self._launcher.start(launch)

    def stop(self, key: str, message: str, grace: float | None) -> None:
        """Have a payload ended."""
        if self._launcher is not None:
            self._launcher.stop(key, message, grace)

    def acknowledge(self, keys: list[str]) -> None:
        """Acknowledge ends, so that the starter forgets them."""
        if self._launcher is not None and keys:
            self._launcher.acknowledge(keys)

    def flush(self) -> None:
        """Send what the starter can take now."""
        if self._launcher is not None:
            self._launcher.flush()

    def receive(self, held: Iterable[str]) -> list[dict[str, Any]]:
        """Take the reports that have arrived, and those that a dead starter owes."""
        if self._launcher is None:
            return []
        reports = [one for one in self._launcher.receive() if one["op"] != "ready"]
        if any(one["op"] == "ended" for one in reports):
            self._deaths = 0
        if self._launcher.gone:
            known = {one["key"] for one in reports if one["op"] == "ended"}
            reports += self._bury([key for key in held if key not in known])
        return reports

    def _bury(self, held: list[str]) -> list[dict[str, Any]]:
        words = self._launcher.bury() if self._launcher is not None else ""
        self._launcher = None
        self._deaths += 1
        _log.error("the starter died with %d payloads: %s", len(held), words or "it said nothing")
        return [lost(key) for key in held]

    def close(self) -> None:
        """End the starter and all that it runs."""
        if self._launcher is not None:
            self._launcher.close()
            self._launcher = None


def lost(key: str) -> dict[str, Any]:
    """Report an end that was not observed."""
    return over(key, "lost", "its starter died, so how it ended is unknown")


def over(key: str, reason: str, message: str) -> dict[str, Any]:
    """Report an end without a process."""
    facts = {"op": "ended", "key": key, "time": time.time(), "exit": None, "signal": None}
    return {**facts, "reason": reason, "message": message, "usage": None}
