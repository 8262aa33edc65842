"""One worker that stays: a process that takes one payload after the other."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import socket
import sys
import time
from typing import Any

from .care import Payload, check, ending
from .process import signal_name

#: Where a worker writes what its payloads say.
STREAMS = (b"stdout", b"stderr")

_BULK = 1 << 18
_LONGEST = 64 << 20
_LONGEST_WORDS = 500


class Call(Payload):
    """A payload in a worker; it ends when the worker answers, or with the worker."""

    words = ""

    def end(self, status: int, used: resource.struct_rusage) -> None:
        """Note how the worker ended, which is never a success."""
        code = os.waitstatus_to_exitcode(status)
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
        told = f": {self.words}" if self.words else ""
        self.decide("signalled" if code < 0 else "exited", f"its worker {how}{told}")
        super().end(status, used)
        self.ending["exit"] = self.ending["exit"] or None

    def answer(self, head: dict[str, Any], result: bytes) -> None:
        """Note what the worker answered."""
        user, system, read, written, rss = (min(float(one), 1e18) for one in head["usage"])
        usage = {
            "wall": time.monotonic() - self.begun,
            "cpu_user": user,
            "cpu_system": system,
            "max_rss": max(int(rss), self.peak),
            "read_bytes": int(read),
            "written_bytes": int(written),
        }
        failed = str(head.get("failed") or "")[:_LONGEST_WORDS]
        self.decide("exited", failed or "returned")
        self.ending = ending(self.key, self.reason, self.message, int(bool(failed)), usage)
        self.ending["result"] = result


class Worker:
    """One process, the channel to it, and where it writes what it says."""

    def __init__(
        self, kind: str, pid: int, channel: socket.socket, streams: list[int], scratch: str = ""
    ) -> None:
        #: What it can run; one of another kind is another process.
        self.kind = kind
        self.pid = pid
        self.channel = channel
        self.payload: Call | None = None
        #: Since when it is without work or, once it must end, until when it may live.
        self.since = time.monotonic()
        self.leaving = False
        #: Whether it sent something else than an answer.
        self.muted = False
        #: Its own folder, which is removed when it has ended; empty if it has none here.
        self._scratch = scratch
        self._streams = streams
        self._copied = [0, 0]
        self._inward = bytearray()
        self._outward = bytearray()

    @property
    def full(self) -> bool:
        """Tell whether it must read before more can be sent."""
        return bool(self._outward)

    def say(self, head: dict[str, Any], body: str) -> None:
        """Send a message, as much of it as can be sent now."""
        data = json.dumps(head).encode() + b"\n" + os.fsencode(body)
        self._outward += len(data).to_bytes(4, "big") + data
        self.flush()

    def flush(self) -> None:
        """Send what it can take now; if it is dead, that shows when it is collected."""
        try:
            while self._outward:
                del self._outward[: self.channel.send(self._outward)]
        except BlockingIOError:
            pass
        except OSError:
            self._outward.clear()

    def hear(self) -> tuple[dict[str, Any], bytes] | None:
        """Take its next answer, if it is there; anything but an answer is an error."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while len(self._inward) < _LONGEST and (data := self.channel.recv(_BULK)):
                self._inward += data
        length = int.from_bytes(self._inward[:4], "big")
        if length + 4 > _LONGEST:
            raise ValueError("its worker sent too much")
        if len(self._inward) < 4 + length or not length or self.muted:
            return None
        head, _, body = bytes(self._inward[4 : 4 + length]).partition(b"\n")
        del self._inward[: 4 + length]
        return json.loads(check(head)), check(body)

    def copy(self) -> None:
        """Copy what the payload has said so far into its directory, which may not be there yet."""
        for at, fd in enumerate(self._streams):
            if self.payload is not None and os.fstat(fd).st_size > self._copied[at]:
                try:
                    self._append(self.payload.place, at)
                except OSError as error:
                    sys.stderr.write(f"no output of {self.payload.key!a}: {error}\n")

    def _append(self, place: bytes, at: int) -> None:
        os.makedirs(place, exist_ok=True)
        # The payload may have put something else there.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(os.path.join(place, STREAMS[at]), flags, 0o644), "wb") as file:
            while data := os.pread(self._streams[at], _BULK, self._copied[at]):
                file.write(data)
                self._copied[at] += len(data)

    def last_words(self) -> str:
        """Return the last line that it wrote to its error stream."""
        fd = self._streams[1]
        lines = os.pread(fd, 2000, max(0, os.fstat(fd).st_size - 2000)).decode(errors="replace")
        return (lines.strip().splitlines() or [""])[-1][:200]

    def free(self) -> None:
        """Note that it is without work."""
        self.payload = None
        self.since = time.monotonic()
        for at, fd in enumerate(self._streams):
            if self._copied[at] or os.fstat(fd).st_size:
                os.ftruncate(fd, 0)
                self._copied[at] = 0

    def signal(self, number: int) -> None:
        """Send a signal to it and its children."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def close(self) -> None:
        """Let go of all that is open."""
        self.channel.close()
        for fd in self._streams:
            os.close(fd)
        self._streams = []
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)
