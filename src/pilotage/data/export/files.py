"""Files that the client of a jail has open."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass

from . import facts
from .facts import Change
from .guard import Guard
from .room import Room
from .tree import CAREFUL, Tree, failed, position, steps, there

_WRITING = os.O_WRONLY | os.O_RDWR
_MOST_READ = 1 << 20


@dataclass(eq=False)
class Handle:
    """An open file."""

    fd: int
    writable: bool
    append: bool
    node: tuple[int, int]


class Files:
    """All open files of one jail, and what is done with them."""

    def __init__(self, tree: Tree, guard: Guard, room: Room, most: int) -> None:
        self._tree = tree
        self._guard = guard
        self._room = room
        self._most = most
        self._open: set[Handle] = set()

    def open(self, path: bytes, flags: int, mode: int) -> Handle:
        """Open a file, and make it if the flags say so."""
        where = steps(path)
        if len(self._open) >= self._most:
            raise failed(errno.EMFILE)
        if flags & (_WRITING | os.O_CREAT | os.O_TRUNC):
            self._guard.writing(where)
        # Emptied only once it is known what it is.
        careful = (flags & ~os.O_TRUNC) | CAREFUL
        with self._tree.above(where) as (above, name):
            new = bool(flags & os.O_CREAT) and there(name, above) is None
            with self._room.adding() if new else contextlib.nullcontext():
                fd = os.open(name, careful, facts.file_mode(mode), dir_fd=above)
        try:
            handle = self._checked(fd, flags)
        except OSError:
            os.close(fd)
            raise
        self._open.add(handle)
        return handle

    def _checked(self, fd: int, flags: int) -> Handle:
        what = os.fstat(fd)
        if stat.S_ISDIR(what.st_mode):
            raise failed(errno.EISDIR)
        if not stat.S_ISREG(what.st_mode):
            raise failed(errno.EACCES)
        writable = bool(flags & _WRITING)
        if writable:
            self._guard.touching(what)
            if flags & os.O_TRUNC:
                os.ftruncate(fd, 0)
                self._room.grow(-what.st_size)
        return Handle(fd, writable, bool(flags & os.O_APPEND), (what.st_dev, what.st_ino))

    def read(self, handle: Handle, offset: int, size: int) -> bytes:
        """Read some bytes; none at the end."""
        return os.pread(self._fd(handle), min(size, _MOST_READ), position(offset))

    def write(self, handle: Handle, offset: int, data: bytes) -> int:
        """Write all the bytes."""
        fd = self._fd(handle)
        if not handle.writable:
            raise failed(errno.EBADF)
        before = os.fstat(fd).st_size
        start = before if handle.append else position(offset)
        growth = max(0, start + len(data) - before)
        self._room.grow(growth)
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(fd, data[done:], start + done)
        except OSError:
            self._room.grow(os.fstat(fd).st_size - before - growth)
            raise
        return done

    def sync(self, handle: Handle) -> None:
        """Have what was written reach the disk."""
        os.fsync(self._fd(handle))

    def look(self, handle: Handle) -> os.stat_result:
        """Tell about an open file."""
        return os.fstat(self._fd(handle))

    def change(self, handle: Handle, change: Change) -> None:
        """Change the facts of an open file."""
        fd = self._fd(handle)
        if change.size is not None and not handle.writable:
            raise failed(errno.EBADF)
        facts.apply(fd, change, self._guard, self._room)

    def close(self, handle: Handle) -> None:
        """Close a file; if it has no name any more, its room is free."""
        fd = self._fd(handle)
        self._open.discard(handle)
        what = os.fstat(fd)
        os.close(fd)
        if not what.st_nlink and not self.has(what):
            self._room.grow(-what.st_size)

    def close_all(self) -> None:
        """Close every file."""
        for handle in self._open:
            os.close(handle.fd)
        self._open.clear()

    def has(self, what: os.stat_result) -> bool:
        """Tell whether a file is open."""
        node = (what.st_dev, what.st_ino)
        return any(handle.node == node for handle in self._open)

    def _fd(self, handle: Handle) -> int:
        if handle not in self._open:
            raise failed(errno.EBADF)
        return handle.fd
