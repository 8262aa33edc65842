"""What a payload has left, by size and content."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Any, Callable

_BULK = 1 << 20
_PLAINLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def look(names: Mapping[str, str], check: Callable[[], None]) -> tuple[dict[str, Any], list[str]]:
    """Describe declared outputs, and complain of those that cannot be read.

    One that is not there, or that cannot be read, is described by nothing. `check` is called now
    and then, and may raise.
    """
    found: dict[str, Any] = {}
    wrong = []
    for name, path in names.items():
        try:
            found[name] = _described(path, check)
        except OSError as error:
            found[name] = None
            wrong.append(f"its output {name} cannot be read: {error.strerror}")
    return found, wrong


def _described(path: str, check: Callable[[], None]) -> dict[str, Any] | None:
    if os.path.isdir(path):
        files = {}
        for folder, _, inside in os.walk(path, onerror=_raise):
            for name in inside:
                full = os.path.join(folder, name)
                facts = _file(full, check)
                if facts is not None:
                    files[os.path.relpath(full, path)] = facts
        return {"files": files}
    return _file(path, check)


def _file(path: str, check: Callable[[], None]) -> dict[str, Any] | None:
    """Hash a file, where its links lead to; nothing if there is none or it is something else."""
    import hashlib

    try:
        fd = os.open(os.path.realpath(path), _PLAINLY)
    except FileNotFoundError:
        return None
    with open(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        digest = hashlib.sha256()
        size = 0
        while piece := file.read(_BULK):
            check()
            digest.update(piece)
            size += len(piece)
        return {"size": size, "sha256": digest.hexdigest()}


def _raise(error: OSError) -> None:
    raise error
