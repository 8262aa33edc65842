"""A control group that bounds the number of processes, where permitted."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from .program import running

#: The controller in its own hierarchy, and in the one for all.
_ROOTS = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")
_OURS = "pilotage"


def entering(processes: int) -> list[str]:
    """Make the beginning of a command that runs the rest of it in a group of its own."""
    return [*running("cgroup"), str(processes)]


def root() -> str:
    """Find where groups can be made that count processes; empty if there is no such place."""
    for path in _ROOTS:
        known = path == _ROOTS[0] or "pids" in _read(f"{path}/cgroup.controllers").split()
        if known and os.path.exists(f"{path}/cgroup.procs") and os.access(path, os.W_OK):
            return path
    return ""


def enter(processes: int) -> None:
    """Put this process into a new group; remove those of ours that are empty."""
    top = root()
    if not top:
        raise OSError("no control group bounds the processes of root here")
    ours = f"{top}/{_OURS}"
    os.makedirs(ours, exist_ok=True)
    if top != _ROOTS[0]:
        for path in (top, ours):
            _write(f"{path}/cgroup.subtree_control", "+pids")
    for name in os.listdir(ours):
        # Each is named after the process it was made for.
        if not os.path.exists(f"/proc/{name}"):
            with contextlib.suppress(OSError):
                os.rmdir(f"{ours}/{name}")
    mine = f"{ours}/{os.getpid()}"
    os.makedirs(mine, exist_ok=True)
    _write(f"{mine}/pids.max", str(processes))
    _write(f"{mine}/cgroup.procs", str(os.getpid()))


def main(argv: Sequence[str]) -> None:
    """Enter a group and become the program that the rest of the arguments is."""
    try:
        enter(int(argv[0]))
        os.execvp(argv[1], list(argv[1:]))  # noqa: S606 - it takes our place
    except OSError as error:
        sys.exit(f"cannot bound its processes: {error}")


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
