"""Processes, told apart from later ones with the same number by when they were born."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

#: In the environment of every process of a bed: the name of its journal.
MARK = "PILOTAGE_TESTBED"


@dataclass(frozen=True)
class Process:
    """A process of a bed."""

    #: Its number.
    pid: int
    #: When it began, in ticks since the machine did.
    born: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """Return the process that now has a number; born at 0 if it is gone already."""
        fields = _stat(pid)
        return cls(pid, int(fields[19]) if fields else 0)

    @classmethod
    def parse(cls, text: str) -> Process:
        """Read what `str` writes."""
        pid, born = text.split()
        return cls(int(pid), int(born))

    def __str__(self) -> str:
        return f"{self.pid} {self.born}"

    @property
    def alive(self) -> bool:
        """Whether it still runs; one that only waits to be reaped does not."""
        fields = _stat(self.pid)
        if not fields or int(fields[19]) != self.born:
            return False
        # The first thread may be gone while others still hold ports and locks.
        return fields[0] != "Z" or _threads(self.pid) > 1

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end(self, number: signal.Signals = signal.SIGKILL, timeout: float = 10) -> None:
        """Send it a signal, wait until it is gone, and kill it if that takes too long."""
        self.send(number)
        deadline = time.monotonic() + timeout
        while self.alive:
            if time.monotonic() > deadline:
                self.send(signal.SIGKILL)
            time.sleep(0.01)


def end(those: Iterable[Process]) -> None:
    """Kill processes at once: none is there to see that another is gone."""
    those = list(those)
    for process in those:
        process.send(signal.SIGKILL)
    for process in those:
        process.end()


def every() -> Iterator[int]:
    """Yield the number of each process."""
    yield from (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def below(pid: int) -> list[Process]:
    """Return the children of a process, and theirs."""
    parents = {each: int(fields[1]) for each in every() if (fields := _stat(each))}
    found, front = [], {pid}
    while front := {each for each, parent in parents.items() if parent in front}:
        found += [Process.of(each) for each in front]
    return found


def of_user(name: str) -> list[Process]:
    """Return the processes of a user."""
    try:
        uid = pwd.getpwnam(name).pw_uid
    except KeyError:
        return []
    return [Process.of(pid) for pid in every() if _owner(pid) == uid]


def marked(name: str, value: str) -> list[Process]:
    """Return the processes that began with a variable in their environment."""
    line = f"{name}={value}".encode()
    return [Process.of(pid) for pid in every() if line in _environment(pid)]


def variable(pid: int, name: str) -> str:
    """Return a variable of the environment that a process began with; nothing if it had none."""
    start = f"{name}=".encode()
    found = (one for one in _environment(pid) if one.startswith(start))
    return next(found, b"").partition(b"=")[2].decode(errors="replace")


def _stat(pid: int) -> list[str]:
    """Return what the kernel says of a process, from its state on; nothing if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text[text.rindex(")") + 2 :].split()


def _threads(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _owner(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except (FileNotFoundError, ProcessLookupError):
        return -1


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
