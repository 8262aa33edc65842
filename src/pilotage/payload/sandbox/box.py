"""An order to start a payload in a sandbox, checked and complete."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from typing import Any, NamedTuple

#: How many processes and threads a payload may have if its order does not say.
PROCESSES = 4096
#: How many files each of them may have open.
OPEN_FILES = 65536
#: How large each of its private folders in memory may become, if its memory is not less.
SCRATCH = 1 << 29

_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_KERNEL = {
    "cpu_seconds": resource.RLIMIT_CPU,
    "file_size": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
}


class NotPossibleError(ValueError):
    """An order that this sandbox cannot carry out."""


class Wrapped(NamedTuple):
    """The process to start in place of a payload."""

    argv: list[str]
    env: dict[str, str]
    #: What must be in an open file, rewound, that the process inherits as number 3.
    handed: bytes


class Box(NamedTuple):
    """A payload and its sandbox."""

    key: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    #: Its own directory; empty if it has none.
    place: str
    image: str
    user: str
    readable: list[str]
    writable: list[str]
    network: bool
    limits: dict[str, int]
    #: The largest size of a private folder in memory, in bytes.
    scratch: int


def box(order: Mapping[str, Any]) -> Box:
    """Check an order and complete it."""
    asked = order["sandbox"]
    place = _absolute(order["dir"])
    if order.get("warm") and not os.path.isdir(place):
        place = ""
    cwd = _absolute(order["cwd"]) if place or not order.get("warm") else "/tmp"  # noqa: S108 - inside
    env = {"PATH": _PATH, **order["env"], "HOME": place or cwd, "TMPDIR": "/tmp"}  # noqa: S108 - inside
    if bad := [name for name in env if not name or "=" in name or "\0" in name]:
        raise NotPossibleError(f"{bad[0]!r} cannot be the name of a variable")
    if any("\0" in text for text in (*env.values(), *order["argv"], cwd, place)):
        raise NotPossibleError("a zero byte cannot be in an argument")
    made = Box(
        key=order["key"],
        argv=list(order["argv"]),
        env=env,
        cwd=cwd,
        place=place,
        image=asked.get("image", ""),
        user=asked.get("user", ""),
        readable=[_absolute(path) for path in asked.get("readable", ())],
        writable=[_absolute(path) for path in asked.get("writable", ())],
        network=asked.get("network", True),
        limits=_limits(order.get("limits") or {}),
        scratch=min(SCRATCH, order.get("memory") or SCRATCH),
    )
    if not made.argv or not made.argv[0]:
        raise NotPossibleError("there is no program to run")
    return made


def _limits(asked: Mapping[str, int]) -> dict[str, int]:
    limits = {"processes": PROCESSES, "open_files": OPEN_FILES, **asked}
    if "disk" in limits:
        # What is watched once a moment must not grow without end between two looks.
        limits["file_size"] = min(limits["disk"], limits.get("file_size", limits["disk"]))
    return {name: _at_most(name, value) for name, value in limits.items()}


def _at_most(name: str, value: int) -> int:
    """Lower a limit to our own hard limit, which cannot be raised."""
    hard = resource.getrlimit(_KERNEL[name])[1] if name in _KERNEL else -1
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise NotPossibleError(f"{path!r} must be an absolute path to be seen in a sandbox")
    return os.path.normpath(path)
