"""Facts of processes, from /proc."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import NamedTuple

#: The environment variable that says whose payload a process is.
KEY = "PILOTAGE_KEY"
#: The environment variable that names the lock of the starter it is a payload of.
STARTER = "PILOTAGE_STARTER"
#: The environment variable that tells a worker that stays from other processes.
WORKER = "PILOTAGE_WORKER"

_PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessRow(NamedTuple):
    """One process."""

    #: One letter, such as R for running and Z for dead but not yet collected.
    state: str
    #: The process that collects it.
    parent: int
    #: Its process group.
    group: int
    #: Its session.
    session: int
    #: The memory it holds now, in bytes.
    resident: int


def table() -> dict[int, ProcessRow]:
    """Describe all processes."""
    found = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                words = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        state, parent, group, session = words[:4]
        resident = int(words[21]) * _PAGE
        found[pid] = ProcessRow(state.decode(), int(parent), int(group), int(session), resident)
    return found


def children() -> list[int]:
    """List the direct children of this process."""
    me = os.getpid()
    try:
        # Unbuffered: this is read whenever something ended.
        with open(f"/proc/self/task/{me}/children", "rb", buffering=0) as file:
            return [int(pid) for pid in file.readall().split()]
    except FileNotFoundError:
        return [pid for pid, row in table().items() if row.parent == me]


def environ(pid: int) -> dict[str, str]:
    """Read the environment of a process, as far as it can be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = [os.fsdecode(pair).partition("=") for pair in file.read().split(b"\0")]
    except OSError:
        return {}
    return {name: value for name, _, value in pairs}


def key_of(pid: int) -> str | None:
    """Return whose payload a process is; a worker that stays bears the name of its present one."""
    marks = environ(pid)
    if marks.get(WORKER):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", "rb") as file:
            return os.fsdecode(file.read().rstrip(b"\n"))
    return marks.get(KEY)


def memory(groups: set[int]) -> dict[int, int]:
    """Sum the resident bytes of each group and of the descendants that left it."""
    sums = dict.fromkeys(groups, 0)
    processes = table()
    for first in processes:
        pid = first
        while pid in processes and processes[pid].group not in sums:
            pid = processes[pid].parent
        if pid in processes:
            sums[processes[pid].group] += processes[first].resident
    return sums


def signal_name(number: int) -> str:
    """Name a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
