"""Paths that cannot be trusted: names from elsewhere, and trees in which others may put links.

Links are never followed out of a folder. Where a file may be swapped for a link meanwhile, a
path is opened step by step, each step relative to the folder before it.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Collection, Iterator

from pilotage.base import errors, text

#: What a SHA-256 looks like.
DIGEST = re.compile("[0-9a-f]{64}")
#: How what others wrote is opened: not through a link, and without waiting for a pipe.
CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_DEEPEST = 64
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# -- names -----------------------------------------------------------------------------------------


def check_name(name: str, *, who: str = "the site") -> None:
    """Raise `Denied` for a name that leads out of its folder; `who` has sent it."""
    parts = name.split("/")
    if not all(parts) or "\0" in name or {".", ".."} & set(parts):
        raise errors.Denied(f"{who} names a file {text.show(name)!r}, which cannot be")


def check_names(names: Collection[str], *, who: str = "the site") -> None:
    """Raise `Denied` for a name that leads out of its folder, or is the folder of another."""
    folders: set[str] = set()
    for name in names:
        check_name(name, who=who)
        parts = name.split("/")
        folders.update("/".join(parts[:count]) for count in range(1, len(parts)))
    if both := folders.intersection(names):
        one = text.show(min(both))
        raise errors.Denied(f"{who} names {one!r} as a file and as a folder")


def check_digest(sha256: str, size: int, *, who: str = "the site") -> None:
    """Raise `Denied` for a digest or a size that no file has: digests become parts of names."""
    if not DIGEST.fullmatch(sha256) or size < 0:
        raise errors.Denied(f"{who} says {text.show(sha256)!r} of {size} bytes: no such file")


# -- below a folder --------------------------------------------------------------------------------


def contains(top: str | os.PathLike[str], path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a folder or below it, wherever links lead now."""
    return _within(os.path.realpath(top), path)


def _within(top: str, path: str | os.PathLike[str]) -> bool:
    """Do as `contains` does for a folder whose real path is known."""
    return os.path.commonpath((top, os.path.realpath(path))) == top


def inside(top: str, name: str) -> str:
    """Make the folder of a file below `top` and return its path; no link may lead out."""
    real, path = os.path.realpath(top), os.path.join(top, name)
    folder = os.path.dirname(path)
    # Before anything is made: a link must not make us build folders elsewhere.
    if not (_within(real, folder) and _within(real, path)):
        raise _leads_out(path, top)
    os.makedirs(folder, exist_ok=True)
    return path


@contextlib.contextmanager
def above(top: int | str, name: str) -> Iterator[tuple[int, str]]:
    """Open the folder that holds `name` below `top`, step by step; give it and the last step.

    No part of the name may be a link. `top` is a folder, or a descriptor of one.
    """
    *folders, last = name.split("/")
    if ".." in (*folders, last):
        raise errors.Denied(f"{text.show(name)} leads out of its folder")
    at = os.dup(top) if isinstance(top, int) else os.open(top, _STEP)
    try:
        for folder in folders:
            at, before = os.open(folder, _STEP, dir_fd=at), at
            os.close(before)
        yield at, last
    finally:
        os.close(at)


@contextlib.contextmanager
def opened(top: str, name: str) -> Iterator[int]:
    """Open a file below `top` to read, whatever is swapped for a link meanwhile.

    A link to a file of the same tree stands for that file.
    """
    real, path = os.path.realpath(top), os.path.join(top, name)
    if os.path.islink(path):
        if not _within(real, path):
            raise _leads_out(path, top)
        name = os.path.relpath(os.path.realpath(path), real)
    with above(real, name) as (folder, last):
        file = os.open(last, os.O_RDONLY | CAREFUL, dir_fd=folder)
    try:
        yield file
    finally:
        os.close(file)


def walk(top: str) -> Iterator[tuple[str, os.stat_result]]:
    """Give every file of a folder by its name below it, in order, with its facts.

    A link to a file of the same tree counts as that file; any other link is refused.
    """
    yield from _walk(os.path.realpath(top), "", 0)


def _walk(top: str, below: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    if depth > _DEEPEST:
        raise errors.Denied(f"{text.show(below)} is too deep a folder")
    with os.scandir(os.path.join(top, below)) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        name = os.path.join(below, entry.name)
        if entry.is_symlink():
            yield name, _linked(top, name)
        elif entry.is_dir(follow_symlinks=False):
            yield from _walk(top, name, depth + 1)
        else:
            yield name, entry.stat(follow_symlinks=False)


def _linked(top: str, name: str) -> os.stat_result:
    path = os.path.join(top, name)
    real = os.path.realpath(path)
    if not _within(top, real) or not os.path.isfile(real):
        raise errors.Denied(
            f"{text.show(path)} is a link that leads out, to a folder or nowhere",
            hint="only links to files of the same folder are followed",
        )
    return os.stat(real)


# -- regular files ---------------------------------------------------------------------------------


@contextlib.contextmanager
def regular(path: str) -> Iterator[int]:
    """Open a file to read that another program wrote; a link, a pipe or a device is refused."""
    file = os.open(path, os.O_RDONLY | CAREFUL)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise errors.Denied(f"{text.show(path)} is not a regular file")
        yield file
    finally:
        os.close(file)


def read(path: str, most: int) -> bytes:
    """Read a regular file; raise `TooLarge` if it has more than `most` bytes."""
    with regular(path) as file:
        found = bytearray()
        while data := os.read(file, most + 1 - len(found)):
            found += data
    if len(found) > most:
        raise errors.TooLarge(f"{text.show(path)} has more than {most} bytes")
    return bytes(found)


def _leads_out(path: str, top: str) -> errors.Denied:
    return errors.Denied(f"{text.show(path)} is a link that leads out of {text.show(top)}")
