"""Workers that stay between payloads: start, assign, and end them."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time
from typing import Any

from . import boxed, spawn
from .payloads import Payload, check, ending
from .process import WORKER, signal_name

#: Where a worker writes what its payloads say.
STREAMS = (b"stdout", b"stderr")

_BULK = 1 << 18
_LONGEST = 64 << 20
_LONGEST_WORDS = 500


class WorkerCall(Payload):
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
        self.payload: WorkerCall | None = None
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
        """Return whether it must read before more can be sent."""
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
        """Close everything."""
        self.channel.close()
        for fd in self._streams:
            os.close(fd)
        self._streams = []
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)


#: Seconds after which a worker without work ends.
_IDLE_SECONDS = 60.0
#: Workers without work, at most, where the number of payloads is not limited.
_MOST_IDLE = 32
#: How long a worker may take to end by itself.
_LEAVE_SECONDS = 2.0
#: How often workers are looked at.
_LOOK_SECONDS = 0.25
#: The folder of a worker in a sandbox, which is private there and goes with it.
_INSIDE = "/tmp/scratch"  # noqa: S108 - inside


def scratch_of(lock: bytes) -> str:
    """Name the folder that holds those of the workers of a starter, by its lock."""
    return f"{os.fsdecode(lock)}.d"


class Workers:
    """All workers, by process."""

    def __init__(self, lock: bytes, slots: int, poll: select.poll) -> None:
        self._lock = lock
        self._most = slots or _MOST_IDLE
        self._poll = poll
        self._all: dict[int, Worker] = {}
        self._channels: dict[int, Worker] = {}
        self._looked = 0.0
        #: How many folders of workers have been made.
        self._made = 0

    def __contains__(self, pid: int) -> bool:
        return pid in self._all

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, order: dict[str, Any], place: bytes, cwd: bytes) -> tuple[WorkerCall, bool]:
        """Give a payload to a worker without work, or to a new one; return whether it is new."""
        if os.path.lexists(place):
            raise spawn.ClaimedError("the attempt was already claimed")
        ready = [one for one in self._idle() if one.kind == order["warm"]]
        # The one that worked last has the most in its caches.
        worker = max(ready, key=lambda one: one.since) if ready else self._new(order, cwd)
        worker.payload = WorkerCall(order, worker.pid, place)
        head = {"key": order["key"], "dir": order["dir"]}
        if "folder.json" in order["files"]:
            head["folder"] = order["files"]["folder.json"]
        worker.say(head, order["files"]["calls.json"])
        self._listen(worker)
        return worker.payload, not ready

    def _idle(self) -> list[Worker]:
        return [one for one in self._all.values() if one.payload is None and not one.leaving]

    def _new(self, order: dict[str, Any], cwd: bytes) -> Worker:
        idle = sorted(self._idle(), key=lambda one: one.since)
        for one in idle[: max(0, len(idle) + 1 - self._most)]:
            self.retire(one)
        scratch = self._scratch(order)
        ours, theirs = socket.socketpair()
        streams = [os.memfd_create(name.decode(), os.MFD_CLOEXEC) for name in STREAMS]
        actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)]
        actions += [
            # Opened again, so that every writer appends.
            (os.POSIX_SPAWN_OPEN, at, b"/proc/self/fd/%d" % fd, os.O_WRONLY | os.O_APPEND, 0)
            for at, fd in enumerate(streams, 1)
        ]
        try:
            with theirs:
                marked = {**order, "env": {**order["env"], WORKER: "1"}}
                pid = spawn.in_folder(b"/" if scratch else cwd, marked, actions, self._lock)
        except BaseException:
            ours.close()
            for fd in streams:
                os.close(fd)
            raise
        ours.setblocking(False)
        worker = Worker(order["warm"], pid, ours, streams, "" if boxed.kind(order) else scratch)
        self._all[pid] = self._channels[ours.fileno()] = worker
        worker.say({"scratch": scratch}, order["files"]["recipe.json"])
        return worker

    def _scratch(self, order: dict[str, Any]) -> str:
        """Name a folder of a new worker's own; empty if its order says where it works."""
        if order["cwd"]:
            return ""
        if boxed.kind(order):
            return _INSIDE
        self._made += 1
        return f"{order.get('scratch') or scratch_of(self._lock)}/{self._made}"

    def _listen(self, worker: Worker) -> None:
        writable = select.POLLOUT if worker.full else 0
        self._poll.register(worker.channel, select.POLLIN | writable)

    def hear(self, fd: int) -> WorkerCall | None:
        """See what a worker has to say; return the payload if that is its end."""
        worker = self._channels.get(fd)
        if worker is None:
            return None
        worker.flush()
        self._listen(worker)
        payload = self.finish(worker)
        if payload is None and not self._alive(worker):
            # A closed channel is always readable; the end of the process tells the rest.
            self._poll.unregister(worker.channel)
        return payload

    def _alive(self, worker: Worker) -> bool:
        try:
            return worker.channel.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def finish(self, worker: Worker) -> WorkerCall | None:
        """Make the answer of a worker the end of its payload, if it has come."""
        payload = worker.payload
        try:
            answer = worker.hear()
            if answer is None or payload is None:
                return None
            stopped = bool(payload.reason)
            payload.answer(*answer)
        except (ValueError, TypeError, KeyError, RecursionError):
            # A worker that breaks the protocol is not read any more.
            worker.muted = True
            worker.signal(signal.SIGKILL)
            return None
        worker.copy()
        worker.free()
        if stopped or answer[0].get("last"):
            # A signal may still be on its way to it.
            self.retire(worker)
        return payload

    def died(self, pid: int) -> WorkerCall | None:
        """Forget a worker whose process ended; return the payload that it answered at last."""
        worker = self._all.pop(pid)
        worker.signal(signal.SIGKILL)
        payload = self.finish(worker)
        if worker.payload is not None:
            worker.payload.words = worker.last_words()
            worker.copy()
        with contextlib.suppress(KeyError):
            self._poll.unregister(worker.channel)
        del self._channels[worker.channel.fileno()]
        worker.close()
        return payload

    def retire(self, worker: Worker) -> None:
        """Ask a worker to end; kill it later if it does not."""
        worker.leaving = True
        worker.since = time.monotonic() + _LEAVE_SECONDS
        with contextlib.suppress(OSError):
            worker.channel.shutdown(socket.SHUT_RDWR)

    def tidy(self, *, ending: bool) -> None:
        """End workers that were idle for long, or all when the starter ends."""
        now = time.monotonic()
        if now < self._looked + _LOOK_SECONDS and not ending:
            return
        self._looked = now
        for worker in self._all.values():
            if worker.leaving:
                if now > worker.since:
                    worker.signal(signal.SIGKILL)
            elif worker.payload is None and (ending or now > worker.since + _IDLE_SECONDS):
                self.retire(worker)
            elif worker.payload is not None:
                worker.copy()

    def patience(self) -> float | None:
        """Return for how many seconds nothing is due."""
        if not self._all:
            return None
        busy = any(one.payload is not None or one.leaving for one in self._all.values())
        return 0.5 if busy else 5.0
