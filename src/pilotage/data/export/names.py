"""Names in a jail: what its client may look at, make, move and remove."""

from __future__ import annotations

import errno
import os
import stat

from . import facts
from .facts import Change
from .files import Files
from .guard import Guard
from .room import Room
from .tree import CAREFUL, Tree, failed, steps, there


class Names:
    """All that is done by name; links are never followed."""

    def __init__(self, tree: Tree, guard: Guard, room: Room, files: Files) -> None:
        self._tree = tree
        self._guard = guard
        self._room = room
        self._files = files

    def look(self, path: bytes) -> os.stat_result:
        """Tell about a name; a link is a link."""
        return self._tree.look(steps(path))

    def listing(self, path: bytes) -> list[bytes]:
        """List a folder."""
        return self._tree.names(steps(path))

    def looks(self, path: bytes, names: list[bytes]) -> list[tuple[bytes, os.stat_result]]:
        """Tell about names in a folder; those that are gone are left out."""
        with self._tree.above((*steps(path), b"any")) as (fd, _):
            found = ((name, there(name, fd)) for name in names)
            return [(name, what) for name, what in found if what is not None]

    def target(self, path: bytes) -> bytes:
        """Read a link, which is only text here."""
        with self._tree.above(steps(path)) as (fd, name):
            return os.readlink(name, dir_fd=fd)

    def space(self) -> os.statvfs_result:
        """Tell about the file system."""
        return os.statvfs(self._tree.top)

    def make_folder(self, path: bytes, mode: int) -> None:
        """Make a folder."""
        where = steps(path)
        self._guard.writing(where)
        with self._tree.above(where) as (fd, name), self._room.adding():
            os.mkdir(name, facts.folder_mode(mode), dir_fd=fd)

    def make_link(self, text: bytes, path: bytes) -> None:
        """Make a symbolic link: its text may be anything, as nobody here follows it."""
        where = steps(path)
        self._guard.writing(where)
        if b"\0" in text:
            raise failed(errno.EINVAL)
        with self._tree.above(where) as (fd, name), self._room.adding():
            os.symlink(text, name, dir_fd=fd)

    def make_name(self, old: bytes, new: bytes) -> None:
        """Give a file another name."""
        was, becomes = steps(old), steps(new)
        self._guard.writing(was)
        self._guard.writing(becomes)
        with self._tree.above(was) as (fd, name), self._tree.above(becomes) as (other, made):
            what = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if not stat.S_ISREG(what.st_mode):
                raise failed(errno.EPERM)
            self._guard.touching(what)
            with self._room.adding():
                os.link(name, made, src_dir_fd=fd, dst_dir_fd=other, follow_symlinks=False)

    def remove(self, path: bytes) -> None:
        """Remove a file or a link."""
        where = steps(path)
        self._guard.moving(where)
        with self._tree.above(where) as (fd, name):
            what = os.stat(name, dir_fd=fd, follow_symlinks=False)
            os.unlink(name, dir_fd=fd)
        self._gone(what)

    def remove_folder(self, path: bytes) -> None:
        """Remove an empty folder."""
        where = steps(path)
        self._guard.moving(where)
        with self._tree.above(where) as (fd, name):
            os.rmdir(name, dir_fd=fd)
        self._room.drop()

    def rename(self, old: bytes, new: bytes) -> None:
        """Rename, but not over what is there."""
        with self._tree.above(steps(new)) as (fd, name):
            if there(name, fd) is not None:
                raise failed(errno.EEXIST)
        self.replace(old, new)

    def replace(self, old: bytes, new: bytes) -> None:
        """Rename, over what is there."""
        was, becomes = steps(old), steps(new)
        self._guard.moving(was)
        self._guard.moving(becomes)
        with self._tree.above(was) as (fd, name), self._tree.above(becomes) as (other, made):
            what, before = there(name, fd), there(made, other)
            os.rename(name, made, src_dir_fd=fd, dst_dir_fd=other)
        # Two names of one file both stay, as POSIX has it.
        if before is not None and what is not None and before.st_ino != what.st_ino:
            self._gone(before)

    def change(self, path: bytes, change: Change) -> None:
        """Change the facts of a file or folder, or of a link itself, never of what it leads to."""
        where = steps(path)
        self._guard.writing(where)
        with self._tree.above(where) as (above, name):
            what = os.stat(name, dir_fd=above, follow_symlinks=False)
            if stat.S_ISLNK(what.st_mode) and change.size is None:
                self._change_link(name, above, change)
                return
            flags = os.O_RDONLY if change.size is None else os.O_WRONLY
            fd = os.open(name, flags | CAREFUL, dir_fd=above)
        try:
            facts.apply(fd, change, self._guard, self._room)
        finally:
            os.close(fd)

    def _change_link(self, name: bytes, fd: int, change: Change) -> None:
        if change.times is not None:
            os.utime(name, ns=change.times, dir_fd=fd, follow_symlinks=False)

    def _gone(self, what: os.stat_result) -> None:
        """Count what has lost a name."""
        self._room.drop()
        last = stat.S_ISREG(what.st_mode) and what.st_nlink == 1
        if last and not self._files.has(what):
            self._room.grow(-what.st_size)
