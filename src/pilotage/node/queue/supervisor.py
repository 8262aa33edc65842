"""Supervisor of a submission: runs items as cores get free, and records how each ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from . import submission
from .submission import LocalSubmission


class Slots:
    """Cores that one supervisor holds; free cores go to the supervisor whose turn it is."""

    def __init__(self, root: str, count: int) -> None:
        self._folder = os.path.join(root, ".slots")
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._count = count
        self._turn = self._open("turn")
        self._mine = False
        #: What was taken but does not suffice yet.
        self._some: list[int] = []

    def take(self, cores: int, *, wait: bool) -> list[int] | None:
        """Take this number of cores, or none; with `wait`, block until it is our turn."""
        if not self._mine and not _lock(self._turn, wait=wait):
            return None
        self._mine = True
        for number in range(self._count):
            if len(self._some) == cores:
                break
            slot = self._open(str(number))
            # Of two descriptors of ours for one file, only the first gets the lock.
            if _lock(slot, wait=False):
                self._some.append(slot)
            else:
                os.close(slot)
        if len(self._some) < cores:
            return None
        taken, self._some = self._some, []
        self._mine = False
        fcntl.flock(self._turn, fcntl.LOCK_UN)
        return taken

    def _open(self, name: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        return os.open(os.path.join(self._folder, name), flags, 0o600)


def free(taken: list[int]) -> None:
    """Release cores."""
    for slot in taken:
        os.close(slot)


def _lock(fd: int, *, wait: bool) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


_GLANCE_S = 0.1
_WEIGH_S = 0.5
#: Nothing runs before it is written down what runs: a supervisor that dies in between lets it end.
_GATE = 'read go && exec /bin/sh "$0" </dev/null'
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Running:
    """An item that runs."""

    index: int
    process: subprocess.Popen[bytes]
    cores: list[int]
    #: On the monotonic clock.
    deadline: float
    kill: float = float("inf")
    #: Why we end it; empty while we do not.
    cause: str = ""
    weighed: float = 0.0


class Supervisor:
    """Runs all items of one submission."""

    def __init__(self, given: LocalSubmission, root: str) -> None:
        self._submission = given
        self._order = given.order()
        self._slots = Slots(root, self._order["slots"])
        self._waiting = list(range(self._order["count"]))
        self._running: list[Running] = []

    def run(self) -> None:
        """Run until all items are over."""
        # A child that ends wakes us out of the pause.
        ended, wake = os.pipe()
        os.set_blocking(ended, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        while self._waiting or self._running:
            for one in list(self._running):
                self._look(one)
            self._begin()
            if select.select([ended], [], [], _GLANCE_S)[0]:
                os.read(ended, 4096)

    def _begin(self) -> None:
        """Start as many items as there are cores for."""
        while self._waiting:
            taken = self._slots.take(self._order["cores"], wait=not self._running)
            if taken is None:
                return
            if not self._next(taken):
                free(taken)

    def _next(self, taken: list[int]) -> bool:
        """Start the next item that was not cancelled."""
        while self._waiting:
            index = self._waiting.pop(0)
            if self._submission.claim(f"{index}.begun", {"cancelled": False}):
                self._start(index, taken)
                return True
        return False

    def _start(self, index: int, taken: list[int]) -> None:
        folder = self._order["folder"]
        try:
            with (
                open(f"{folder}/out.{index}", "ab") as out,
                open(f"{folder}/err.{index}", "ab") as err,
            ):
                process = subprocess.Popen(
                    ["/bin/sh", "-c", _GATE, self._submission.script],
                    cwd=folder,
                    env={**os.environ, "PILOTAGE_INDEX": str(index)},
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
        except (OSError, subprocess.SubprocessError) as error:
            free(taken)
            self._submission.write(f"{index}.over", {"cause": "node", "words": str(error)})
            return
        limit = self._order["time"]
        deadline = time.monotonic() + limit if limit else float("inf")
        self._running.append(Running(index, process, taken, deadline))
        record = {**submission.describe(process.pid), "time": time.time()}
        self._submission.write(f"{index}.runs", record)
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), process.stdin as gate:
                gate.write(b"go\n")

    def _look(self, one: Running) -> None:
        """See whether an item has ended, or is to be ended."""
        code = one.process.poll()
        if code is not None:
            self._over(one, code)
            return
        now = time.monotonic()
        if not one.cause:
            self._judge(one, now)
        elif now > one.kill:
            _signal(one.process.pid, signal.SIGKILL)

    def _judge(self, one: Running, now: float) -> None:
        if now > one.deadline:
            self._stop(one, "timeout", now)
        elif self._submission.has(f"{one.index}.stop"):
            self._stop(one, "cancelled", now)
        elif self._order["memory"] and now - one.weighed > _WEIGH_S:
            one.weighed = now
            if _weight(one.process.pid) > self._order["memory"]:
                self._stop(one, "memory", now, wait=0)

    def _stop(self, one: Running, cause: str, now: float, wait: float | None = None) -> None:
        one.cause = cause
        one.kill = now + (self._order["grace"] if wait is None else wait)
        _signal(one.process.pid, signal.SIGTERM)

    def _over(self, one: Running, code: int) -> None:
        # What it left behind goes with it.
        _signal(one.process.pid, signal.SIGKILL)
        end: dict[str, Any] = {"cause": one.cause}
        if not one.cause:
            end = {"cause": "exited", "exit": code}
            if code < 0:
                end = {"cause": "signalled", "signal": -code}
        self._submission.write(f"{one.index}.over", {**end, "time": time.time()})
        self._running.remove(one)
        free(one.cores)


def detach(given: LocalSubmission, root: str) -> None:
    """Start the supervisor of a submission in a session of its own; return when it has begun."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        os.waitpid(child, 0)
        with open(read, "rb") as pipe:
            if not pipe.read():
                raise OSError("the supervisor did not begin")
        return
    with contextlib.suppress(BaseException):
        os.setsid()
        if os.fork():
            os._exit(0)
        os.close(read)
        _quiet()
        if given.claim("keeper.json", submission.me()):
            os.write(write, b".")
            os.close(write)
            Supervisor(given, root).run()
    os._exit(0)


def _quiet() -> None:
    """Close everything inherited from the submitting command."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.chdir("/")


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _weight(session: int) -> int:
    """Return how many bytes of memory the processes of a session have."""
    total = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    words = file.read().rpartition(b")")[2].split()
                if int(words[3]) == session:
                    total += int(words[21]) * _PAGE
    return total
