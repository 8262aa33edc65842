"""Inputs and outputs of an item: link or copy, check, measure and hash them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from typing import Any, Callable, NamedTuple

_BULK = 1 << 20
_EXECUTABLE = 0o111


class PlaceError(Exception):
    """An input cannot be put in its place."""


class Placed(NamedTuple):
    """An input that shares its content with the cache."""

    path: str
    cached: str
    facts: tuple[int, int]


def place(
    inputs: Iterable[Mapping[str, Any]], folder: str, area: str, check: Callable[[], None]
) -> list[Placed]:
    """Link or copy inputs; `check` may raise in between. Return those that are links."""
    shared = []
    for one in inputs:
        check()
        source = os.path.join(folder, "in", one["sha256"])
        target = os.path.normpath(one["path"])
        if not target.startswith(f"{area}/"):
            raise PlaceError(f"the input {target} is not below {area}")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if join(source, target, one):
            shared.append(Placed(target, source, facts(target)))
        size = os.stat(target).st_size
        if one.get("size", size) != size:
            raise PlaceError(f"the input {target} has {size} bytes instead of {one['size']}")
    return shared


def changed(shared: Iterable[Placed]) -> list[str]:
    """Find inputs whose content a payload has changed in place, so that no other job gets it."""
    found = []
    for one in shared:
        try:
            same = facts(one.cached) == one.facts
        except FileNotFoundError:
            continue
        if not same:
            found.append(one.path)
            digest = os.path.basename(one.cached)
            root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(one.cached))))
            for name in (os.path.join(root, "cache", digest[:2], digest), one.cached):
                if os.path.lexists(name):
                    os.unlink(name)
    return found


def join(source: str, target: str, one: Mapping[str, Any], *, copy: bool = False) -> bool:
    """Give a file its second name; copy it where that cannot be done. Return whether it is one."""
    mode = int(one.get("mode", 0o644))
    executable = os.stat(source).st_mode & _EXECUTABLE
    # The mode belongs to the content, so all jobs that read it have the same.
    if not copy and bool(mode & _EXECUTABLE) == bool(executable):
        try:
            os.link(source, target)
            return True
        except FileExistsError:
            raise
        except OSError:
            pass
    with open(source, "rb") as read, open(target, "xb") as write:
        while piece := read.read(_BULK):
            write.write(piece)
    os.chmod(target, mode | 0o600)
    return False


def facts(path: str) -> tuple[int, int]:
    """Return what changes when a file is written to."""
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


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
