"""A running payload: its process group, its end, its usage and the evidence of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import sys
import time
from typing import Any

from . import boxed
from .process import signal_name

EVIDENCE = b"exit.json"
RESULT = b"result.json"

_SWEEP_SECONDS = 10.0
#: A tree of processes may be killed from its leaves on: for these seconds after a payload was
#: killed it is in doubt whether that was meant for us, too.
_DOUBT_SECONDS = 1.0
_FROM_OUTSIDE = frozenset(
    {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1,
     signal.SIGUSR2, signal.SIGXCPU}
)  # fmt: skip
_KIBI = 1024
_LONGEST_RESULT = 1 << 20
_ODD = re.compile(rb"\\u[dD]|[eE]\+?[0-9]{3}|[0-9]{300}")
#: A payload may have put a link there that leads to what is not its own, or a pipe that blocks.
_PLAINLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ANEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_encode = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


class Payload:
    """A running process group and what has been decided about it."""

    def __init__(self, order: dict[str, Any], pid: int, place: bytes) -> None:
        self.key: str = order["key"]
        self.pid = pid
        self.place = place
        self.begun = time.monotonic()
        self.timeout: float | None = order["timeout"]
        self.grace: float = order["grace"]
        self.memory: int | None = order["memory"]
        self.result: bool = order.get("result", False)
        #: The kind of its sandbox, and what measures its directory, if there is one.
        self.kind = boxed.kind(order)
        self.gauge = boxed.gauge(order, place, pid)
        self.peak = 0
        self.reason = ""
        self.message = ""
        self.ending: dict[str, Any] = {}
        #: When its end is reported even if something of it cannot be killed.
        self.due = 0.0
        #: Until when its end may turn out to be ours; 0 if there is no doubt.
        self.doubt = 0.0

    def signal(self, number: int) -> None:
        """Send a signal to the whole group, or to all in the sandbox."""
        if self.kind:
            boxed.sandbox().signal_inside(self.kind, self.pid, number)
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def decide(self, reason: str, message: str) -> None:
        """Note why it ends; the first reason stays."""
        if not self.reason:
            self.reason, self.message = reason, message

    def weigh(self, used: int) -> None:
        """Kill it if it uses more memory or disk than it may."""
        if self.kind:
            used = boxed.sandbox().resident(self.pid)
        self.peak = max(self.peak, used)
        if self.memory is not None and used > self.memory:
            self.decide("memory", f"used {size(used)} of its {size(self.memory)} memory")
            self.signal(signal.SIGKILL)
        if self.gauge and (written := self.gauge.look()) > self.gauge.limit:
            self.decide("disk", f"wrote {size(written)} and may write {size(self.gauge.limit)}")
            self.signal(signal.SIGKILL)

    def end(self, status: int, used: resource.struct_rusage) -> None:
        """Note how it ended, as the kernel tells it."""
        code = os.waitstatus_to_exitcode(status)
        if self.kind:
            code = boxed.sandbox().exit_code(code)
        if self.kind and code == -signal.SIGXFSZ:
            self.decide("disk", "wrote more than it may")
        elif code < 0:
            self.decide("signalled", f"killed by {signal_name(-code)}")
        else:
            self.decide("exited", f"exited with code {code}")
        now = time.monotonic()
        self.due = now + _SWEEP_SECONDS
        if self.reason in {"signalled", "exited"} and _killed_by(code) in _FROM_OUTSIDE:
            self.doubt = now + _DOUBT_SECONDS
        usage = {
            "wall": now - self.begun,
            "cpu_user": used.ru_utime,
            "cpu_system": used.ru_stime,
            "max_rss": max(used.ru_maxrss * _KIBI, self.peak),
            # The kernel takes these and /proc/<pid>/io from the same counters.
            "read_bytes": used.ru_inblock * 512,
            "written_bytes": used.ru_oublock * 512,
        }
        self.ending = ending(self.key, self.reason, self.message, code, usage)
        if self.result and (result := read_result(self.place)):
            self.ending["result"] = result

    def excuse(self, message: str) -> None:
        """Mark it as stopped, if its end is in doubt: it was ended with us."""
        if self.doubt:
            self.ending.update(reason="stopped", message=message)
            self.doubt = 0.0

    def add(self, used: resource.struct_rusage) -> None:
        """Count what the first process in its sandbox has used, which outlives the one outside."""
        usage = self.ending["usage"]
        usage["cpu_user"] += used.ru_utime
        usage["cpu_system"] += used.ru_stime
        usage["max_rss"] = max(usage["max_rss"], used.ru_maxrss * _KIBI)
        usage["read_bytes"] += used.ru_inblock * 512
        usage["written_bytes"] += used.ru_oublock * 512


def _killed_by(code: int) -> int:
    """Return the signal that ended a process, or the one of which a shell says that."""
    return -code if code < 0 else code - 128


def ending(
    key: str,
    reason: str,
    message: str,
    code: int | None = None,
    usage: dict[str, float] | None = None,
) -> dict[str, Any]:
    """Make the report of an end; a negative code is a signal."""
    return {
        "op": "ended",
        "key": key,
        "time": time.time(),
        "exit": code if code is not None and code >= 0 else None,
        "signal": -code if code is not None and code < 0 else None,
        "reason": reason,
        "message": message,
        "usage": usage,
    }


def encode(report: dict[str, Any]) -> bytes:
    """Write a report as JSON; its result is JSON already."""
    if "result" not in report:
        return _encode(report).encode()
    rest = {name: value for name, value in report.items() if name != "result"}
    return _encode(rest).encode()[:-1] + b',"result":' + bytes(report["result"]) + b"}"


def check(result: bytes) -> bytes:
    """Return a result that is JSON in one line, or raise."""
    found = json.loads(result.decode(), parse_constant=_refuse)
    if _ODD.search(result):
        # Text that is no Unicode, numbers that are no numbers.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    return result.replace(b"\n", b" ").replace(b"\r", b" ")


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def read_result(place: bytes) -> bytes:
    """Read what a function left, if it is JSON and not too long."""
    try:
        with open(os.open(os.path.join(place, RESULT), _PLAINLY), "rb") as file:
            data = file.read(_LONGEST_RESULT + 1)
        return b"" if len(data) > _LONGEST_RESULT else check(data)
    except (OSError, ValueError, RecursionError):
        return b""


def write_evidence(place: bytes, report: dict[str, Any]) -> None:
    """Leave an ending in the attempt directory, whole and durable or not at all."""
    target = os.path.join(place, EVIDENCE)
    part = target + b".part"
    try:
        # What ran in a worker that stays has no directory unless it needed one.
        os.makedirs(place, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        with open(os.open(part, _ANEW, 0o644), "wb") as file:
            file.write(encode({name: value for name, value in report.items() if name != "op"}))
            file.flush()
            os.fsync(file.fileno())
        os.rename(part, target)
        folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        sys.stderr.write(f"no evidence of {report['key']!a}: {error}\n")


def size(count: float) -> str:
    """Write a number of bytes as people do."""
    if count < _KIBI:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= _KIBI
        if count < _KIBI:
            return f"{count:.1f} {unit}"
    return f"{count / _KIBI:.1f} TiB"
