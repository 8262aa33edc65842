"""Facts of a file that a client may set."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass

from .guard import Guard
from .room import Room
from .tree import failed, position

#: Rights that the owner keeps, so that this machine can read and remove what is left behind.
_FILE_KEPT, _FOLDER_KEPT = 0o400, 0o700


@dataclass(frozen=True)
class Change:
    """What is to be set; None leaves a fact as it is."""

    size: int | None = None
    mode: int | None = None
    owner: tuple[int, int] | None = None
    #: Times of access and change, in nanoseconds.
    times: tuple[int, int] | None = None


def file_mode(mode: int) -> int:
    """Take away the bits that lend a user's rights to others."""
    return (mode & 0o777) | _FILE_KEPT


def folder_mode(mode: int) -> int:
    """Take away such bits of a folder."""
    return (mode & 0o777) | _FOLDER_KEPT


def apply(fd: int, change: Change, guard: Guard, room: Room) -> None:
    """Change an open file or folder."""
    what = os.fstat(fd)
    guard.touching(what)
    folder = stat.S_ISDIR(what.st_mode)
    if not folder and not stat.S_ISREG(what.st_mode):
        raise failed(errno.EACCES)
    if change.owner not in {None, (what.st_uid, what.st_gid)}:
        raise failed(errno.EPERM)
    if change.size is not None:
        room.grow(position(change.size) - what.st_size)
        os.ftruncate(fd, change.size)
    if change.mode is not None:
        os.fchmod(fd, folder_mode(change.mode) if folder else file_mode(change.mode))
    if change.times is not None:
        os.utime(fd, ns=change.times)
