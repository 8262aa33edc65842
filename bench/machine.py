"""The machine: what it is, how busy it is, and what processes have used of it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: The kernel's number for the processor clock of a whole process, with all its threads.
_CPU_CLOCK = 2


def facts() -> dict[str, Any]:
    """Describe the machine, without names and places."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": cores(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "inotify_queue": inotify_queue(),
    }


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def load() -> float:
    """Return the load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def inotify_queue() -> int:
    """Return how many file events the kernel keeps for a reader that is late."""
    return int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return what processes themselves have used so far; their children are not counted."""
    return sum(time.clock_gettime((~pid << 3) | _CPU_CLOCK) for pid in pids)


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that still run."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, file.read_text().split())
    return found


def _field(file: str, name: str) -> str:
    for line in Path(file).read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return "unknown"
