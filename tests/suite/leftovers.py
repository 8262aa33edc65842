"""What a run that was killed left behind, cleared by the next: processes, beds and dead mounts.

Each process that a run starts inherits a variable that names the run. What is marked with a run
that is not alive any more is left over.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from testbed import detached, processes
from testbed.processes import Process

#: In the environment of everything that a run starts: the process of the run.
MARK = "PILOTAGE_TEST_RUN"


def begin() -> None:
    """Mark this run, unless it is a part of one, and clear what earlier ones left."""
    if MARK in os.environ:
        return
    os.environ[MARK] = str(Process.of(os.getpid()))
    clear()


def clear() -> None:
    """Clear what is left of runs that are over."""
    processes.end(list(_left_over()))
    if os.geteuid() == 0:
        detached.down_left_over()
        for place in _dead_mounts():
            subprocess.run(["umount", "--lazy", place], check=False, capture_output=True)


def _left_over() -> Iterator[Process]:
    for pid in processes.every():
        if (run := processes.variable(pid, MARK)) and not Process.parse(run).alive:
            yield Process.of(pid)


def _dead_mounts() -> Iterator[str]:
    """Yield what is mounted in folders of runs that are over.

    Nothing is asked of the file systems themselves: one whose server hangs would hang us, too.
    """
    top = Path(tempfile.gettempdir())
    for line in Path("/proc/mounts").read_text().splitlines():
        place = Path(line.split()[1])
        parts = place.relative_to(top).parts if place.is_relative_to(top) else ()
        if (
            len(parts) > 2
            and parts[0].startswith("pytest-of-")
            and not _lives(top / parts[0] / parts[1])
        ):
            yield str(place)


def _lives(folder: Path) -> bool:
    """Whether the run that made a folder of pytest's goes on: it holds a lock with its number."""
    try:
        return Process.of(int((folder / ".lock").read_text())).alive
    except (FileNotFoundError, ValueError):
        return False
