"""The claim of an item: at most one process ever runs it.

A claim is the folder `<i>.claim` with `by.json` inside. It is made aside, filled, and renamed: the
kernel and every file server refuse to put a folder in the place of one that is not empty, so only
one claim comes into being and none is ever seen without its content. What a server answered may
get lost on the way; what lies there in the end is the truth, so it is read.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from . import durable

_BY = "by.json"
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT, errno.ESTALE)


def take(folder: str, index: int, by: Mapping[str, Any]) -> dict[str, Any] | None:
    """Claim an item; return nothing if it is ours, else what its claim says."""
    target = path(folder, index)
    if os.path.lexists(target):
        return holder(folder, index)
    mark = os.urandom(8).hex()
    aside = os.path.join(folder, f".{index}.{mark}.claim")
    os.mkdir(aside, 0o700)
    try:
        words = {**by, "mark": mark}
        durable.fill(os.path.join(aside, _BY), json.dumps(words))
        durable.sync(aside)
        os.rename(aside, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(aside, _BY))
        with contextlib.suppress(OSError):
            os.rmdir(aside)
        found = holder(folder, index)
        if error.errno not in _TAKEN or found is None:
            raise
        if found.get("mark") != mark:
            return found
    durable.sync(folder)
    return None


def holder(folder: str, index: int) -> dict[str, Any] | None:
    """Read the claim of an item: nothing if there is none, empty if it cannot be read."""
    target = path(folder, index)
    try:
        fd = os.open(os.path.join(target, _BY), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, encoding="utf-8", errors="replace") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {} if os.path.lexists(target) else None
    return found if isinstance(found, dict) else {}


def path(folder: str, index: int) -> str:
    """Name the claim of an item."""
    return os.path.join(folder, f"{index}.claim")


def who() -> dict[str, Any]:
    """Describe this process, for those who find its claim."""
    return {"host": socket.gethostname(), "pid": os.getpid()}
