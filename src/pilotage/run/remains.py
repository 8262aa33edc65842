"""What a starter leaves behind: its lock, the evidence it wrote, and orphans."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec

from pilotage.payload.starter import process
from pilotage.run import reports
from pilotage.run.model import Ending

_KILL_SECONDS = 10.0


def evidence(directory: str | Path) -> Ending | None:
    """Read how the payload of an attempt directory ended, if its starter had to write it down."""
    try:
        data = Path(directory, "exit.json").read_bytes()
        return reports.read_evidence(data)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except (ValueError, msgspec.ValidationError):
        # A payload wrote a file of this name itself; its starter will put evidence in its place.
        return None


def alive(lock: Path) -> bool:
    """Tell whether the starter that holds this lock lives."""
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        # Shared, so that two who look at once do not take each other for the starter.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def end_orphans(keys: Collection[str], session: int | None = None) -> int:
    """Kill whatever runs of these payloads; tell how many processes that were.

    A payload whose starter lives is no orphan, so that of another project with the same key is
    safe. All of `session` is killed too: it is the number of a starter that has died but is not
    collected. This waits until those it killed are gone.
    """
    killed: set[int] = set()
    quiet = 0
    deadline = time.monotonic() + _KILL_SECONDS
    # Twice, since a process that was about to begin shows its environment a moment later.
    while quiet < 2 and time.monotonic() < deadline:
        found = _orphans(keys, session)
        for pid, group in found.items():
            with suppress(ProcessLookupError, PermissionError):
                if group != os.getpgrp():
                    os.killpg(group, signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
        killed.update(found)
        quiet = 0 if found else quiet + 1
        time.sleep(0.02)
    return len(killed)


def signal_adopted(key: str, lock: str, number: int) -> None:
    """Send a signal to a payload whose starter lives but obeys a process that is gone."""
    for pid, row in process.table().items():
        if process.key_of(pid) == key and process.environ(pid).get(process.STARTER) == lock:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(row.group, number)


def _orphans(keys: Collection[str], session: int | None) -> dict[int, int]:
    """Find the processes of these payloads, with their groups."""
    return {
        pid: row.group
        for pid, row in process.table().items()
        if row.state not in "ZX" and (row.session == session or _orphaned(pid, keys))
    }


def _orphaned(pid: int, keys: Collection[str]) -> bool:
    if process.key_of(pid) not in keys:
        return False
    marks = process.environ(pid)
    return process.STARTER not in marks or not alive(Path(marks[process.STARTER]))
