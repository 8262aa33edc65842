"""End processes that a dead starter has left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import time

_KILL_SECONDS = 10.0


def end(session: int, lock: str) -> None:
    """Kill all of a dead starter's session and all that carry its mark; wait until none is left."""
    quiet = 0
    deadline = time.monotonic() + _KILL_SECONDS
    # Twice, since a process that was about to begin shows its environment a moment later.
    while quiet < 2 and time.monotonic() < deadline:
        found = [pid for pid in _processes() if _is_left(pid, session, lock)]
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        quiet = 0 if found else quiet + 1
        time.sleep(0.02)


def _processes() -> list[int]:
    me = os.getpid()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != me]


def _is_left(pid: int, session: int, lock: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        if words[0] in b"ZX":
            return False
        if int(words[3]) == session:
            return True
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"PILOTAGE_STARTER=" + os.fsencode(lock) in file.read().split(b"\0")
    except OSError:
        return False
