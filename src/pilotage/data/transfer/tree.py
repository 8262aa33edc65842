"""Trees of files here: walked and opened so that no link leads out of them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator

from pilotage.base import errors, text
from pilotage.data.transfer import trouble
from pilotage.data.transfer.model import UNKNOWN, Item
from pilotage.data.transfer.version import Version

CHUNK = 1 << 20
_DEEPEST = 64
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def walk(top: str) -> Iterator[Item]:
    """Give every file of a folder, in order; what is neither file nor folder is refused."""
    try:
        yield from _walk(os.path.realpath(top), "", 0)
    except OSError as error:
        raise trouble.of_reading(error) from error


def _walk(top: str, below: str, depth: int) -> Iterator[Item]:
    if depth > _DEEPEST:
        raise errors.Denied(f"{text.show(below)} is too deep a folder")
    with os.scandir(os.path.join(top, below)) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        name = os.path.join(below, entry.name)
        if entry.is_symlink():
            yield _linked(top, name)
        elif entry.is_dir(follow_symlinks=False):
            yield from _walk(top, name, depth + 1)
        else:
            yield item(name, entry.stat(follow_symlinks=False))


def _linked(top: str, name: str) -> Item:
    """Take a link to a file of the same tree for that file, and no other link for anything."""
    path = os.path.join(top, name)
    real = os.path.realpath(path)
    if os.path.commonpath((real, top)) != top or not os.path.isfile(real):
        raise errors.Denied(
            f"{text.show(path)} is a link that leads out, to a folder or nowhere",
            hint="only links to files of the same folder are followed",
        )
    return item(name, os.stat(real))


def item(name: str, facts: os.stat_result) -> Item:
    """Describe a file."""
    if not stat.S_ISREG(facts.st_mode):
        raise errors.Denied(f"{text.show(name)} is neither a file nor a folder")
    stored = facts.st_blocks * 512
    return Item(
        name=name,
        size=facts.st_size,
        mtime=facts.st_mtime_ns,
        mark=":".join(str(part) for part in Version.of(facts)),
        executable=bool(facts.st_mode & 0o100),
        stored=stored if stored < facts.st_size else UNKNOWN,
    )


@contextlib.contextmanager
def opened(top: str, name: str) -> Iterator[int]:
    """Open a file of a tree to read, whatever is swapped for a link meanwhile."""
    path = os.path.join(top, name)
    if os.path.islink(path):
        # A link to a file of the same tree, which is opened by its own name.
        name = os.path.relpath(_within(os.path.realpath(top), path), os.path.realpath(top))
    *folders, last = name.split("/")
    at = os.open(os.path.realpath(top), _FOLDER)
    try:
        for folder in folders:
            at, above = os.open(folder, _FOLDER, dir_fd=at), at
            os.close(above)
        file = os.open(last, _FILE, dir_fd=at)
    finally:
        os.close(at)
    try:
        yield file
    finally:
        os.close(file)


def _within(top: str, path: str) -> str:
    real = os.path.realpath(path)
    if os.path.commonpath((real, top)) != top:
        raise errors.Denied(f"{text.show(path)} is a link that leads out of {text.show(top)}")
    return real


def digest(file: int) -> str:
    """Hash an open file from its beginning."""
    found = hashlib.sha256()
    buffer = memoryview(bytearray(CHUNK))
    at = 0
    while got := os.preadv(file, [buffer], at):
        found.update(buffer[:got])
        at += got
    return found.hexdigest()


def copy(source: int, target: int, at: int, size: int) -> None:
    """Copy a file from an offset on; holes stay holes."""
    os.ftruncate(target, at)
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
            end = min(size, os.lseek(source, start, os.SEEK_HOLE))
        except OSError:
            # Nothing but a hole, or a file system that knows of none and ends here.
            break
        while start < end:
            data = os.pread(source, min(CHUNK, end - start), start)
            if not data:
                return
            write_all(target, data, start)
            start += len(data)
        at = end
    os.ftruncate(target, size)


def write_all(file: int, data: bytes | memoryview, at: int) -> None:
    """Write all of it at an offset."""
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, at)
        view, at = view[done:], at + done
