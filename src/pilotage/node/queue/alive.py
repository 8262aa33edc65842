"""Which process it was, so that another one with the same number is not taken for it."""

from __future__ import annotations

import os
import socket
from typing import Any


def me() -> dict[str, Any]:
    """Describe this process."""
    return describe(os.getpid())


def describe(pid: int) -> dict[str, Any]:
    """Describe a process of this machine."""
    return {"pid": pid, "start": _start(pid), "boot": _boot(), "host": socket.gethostname()}


def elsewhere(who: dict[str, Any]) -> bool:
    """Say whether a process is one of another machine, of which nothing can be seen from here."""
    return bool(who["host"] != socket.gethostname())


def lives(who: dict[str, Any]) -> bool:
    """Say whether a process of this machine is still there, and no zombie."""
    start = _start(who["pid"])
    return start != "" and start == who["start"] and _boot() == who["boot"]


def _start(pid: int) -> str:
    """Return when a process began, in ticks since the machine did; empty if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in b"ZX" else words[19].decode()


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
