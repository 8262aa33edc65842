"""Reach the processes in a sandbox from outside."""

from __future__ import annotations

import contextlib
import os
import signal

#: Kinds with a keeper, who passes signals on.
_KEPT = frozenset({"podman", "user"})
#: What tells a keeper to kill, as SIGKILL would not let it.
KILL = signal.SIGUSR2

_PAGE = os.sysconf("SC_PAGE_SIZE")


def signal_inside(kind: str, pid: int, number: int) -> None:
    """Send a signal to all of a payload whose outermost process is `pid`, and to nothing around it.

    SIGKILL ends that, too.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if _dead(pid):
            os.killpg(pid, number)
        elif kind in _KEPT:
            os.kill(pid, KILL if number == signal.SIGKILL else number)
        elif number == signal.SIGKILL:
            kill_inits(pid)
            os.killpg(pid, number)
        else:
            ask(pid, number)


def exit_code(code: int) -> int:
    """Give the code of what was around a payload the form of its own: below zero is a signal."""
    number = code - 128
    return -number if number in signal.valid_signals() else code


def ask(pid: int, number: int) -> bool:
    """Send a signal to all processes inside but the first; return whether there was one."""
    first, others = inside(pid)
    # The first process of a namespace is deaf to signals, and if it is alone it is the payload.
    for one in others or first:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one, number)
    return bool(first)


def kill_inits(pid: int) -> bool:
    """Kill the first process inside, and with it all others; return whether there was one."""
    first, _ = inside(pid)
    for one in first:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one, signal.SIGKILL)
    return bool(first)


def inside(pid: int) -> tuple[list[int], list[int]]:
    """List the descendants in a process namespace of their own: the first one, and the others."""
    first, others = [], []
    for one in descendants(pid):
        numbers = _numbers(one)
        if len(numbers) == 2 and numbers[1] == "1":
            first.append(one)
        elif len(numbers) > 1:
            others.append(one)
    return first, others


def resident(pid: int) -> int:
    """Sum the memory that is held inside, in bytes; what is around it is not the payload's."""
    pages = 0
    for one in inside(pid)[1]:
        with contextlib.suppress(OSError), open(f"/proc/{one}/statm", "rb") as file:
            pages += int(file.read().split()[1])
    return pages * _PAGE


def descendants(pid: int) -> list[int]:
    """List the children of a process, and theirs."""
    children: dict[int, list[int]] = {}
    for one in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError):
            children.setdefault(int(_stat(one)[1]), []).append(one)
    found = list(children.get(pid, ()))
    for one in found:
        found += children.get(one, ())
    return found


def _dead(pid: int) -> bool:
    try:
        return _stat(pid)[0] in (b"Z", b"X")
    except OSError:
        return True


def _stat(pid: int) -> list[bytes]:
    """Read the state of a process and the number of its parent."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[:2]


def _numbers(pid: int) -> list[str]:
    """Read the numbers that a process has, in our namespace first and in its own last."""
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file,
    ):
        for line in file:
            if line.startswith("NSpid:"):
                return line.split()[1:]
    return []
