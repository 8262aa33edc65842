"""Workers that stay: who has work, who waits for some, and who must end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from typing import Any

from . import boxed, spawn
from .process import WORKER
from .worker import STREAMS, Call, Worker

#: A worker without work ends after so many seconds.
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

    def begin(self, order: dict[str, Any], place: bytes, cwd: bytes) -> tuple[Call, bool]:
        """Give a payload to a worker without work, or to a new one; tell whether it is new."""
        if os.path.lexists(place):
            raise spawn.ClaimedError("the attempt was already claimed")
        ready = [one for one in self._idle() if one.kind == order["warm"]]
        # The one that worked last has the most in its caches.
        worker = max(ready, key=lambda one: one.since) if ready else self._new(order, cwd)
        worker.payload = Call(order, worker.pid, place)
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
            # Opened anew, so that every writer appends.
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

    def hear(self, fd: int) -> Call | None:
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

    def finish(self, worker: Worker) -> Call | None:
        """Make the answer of a worker the end of its payload, if it has come."""
        payload = worker.payload
        try:
            answer = worker.hear()
            if answer is None or payload is None:
                return None
            stopped = bool(payload.reason)
            payload.answer(*answer)
        except (ValueError, TypeError, KeyError, RecursionError):
            # Who speaks like that is not listened to any more.
            worker.muted = True
            worker.signal(signal.SIGKILL)
            return None
        worker.copy()
        worker.free()
        if stopped or answer[0].get("last"):
            # A signal may still be on its way to it.
            self.retire(worker)
        return payload

    def died(self, pid: int) -> Call | None:
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
        """Let a worker end, and see to it a little later."""
        worker.leaving = True
        worker.since = time.monotonic() + _LEAVE_SECONDS
        with contextlib.suppress(OSError):
            worker.channel.shutdown(socket.SHUT_RDWR)

    def tidy(self, *, ending: bool) -> None:
        """Let those end that had no work for long, or all if it is time to go."""
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
        """Tell for how many seconds nothing is due."""
        if not self._all:
            return None
        busy = any(one.payload is not None or one.leaving for one in self._all.values())
        return 0.5 if busy else 5.0
