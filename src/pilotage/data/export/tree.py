"""A folder and what lies in it, reached step by step so that no link leads out of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

#: A path within the folder, without `.`, `..` and empty names; the folder itself is empty.
Steps = tuple[bytes, ...]

_MOST_STEPS = 128
_LONGEST = 4096
#: How anything is opened: not through a link, not waiting, not for programs that we start.
CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def failed(number: int) -> OSError:
    """Make the error of a number."""
    return OSError(number, os.strerror(number))


def steps(path: bytes) -> Steps:
    """Read a path that a client wrote: it begins at the folder, and nothing is above that.

    As links are never followed, `..` can be taken away before the path is walked.
    """
    if len(path) > _LONGEST:
        raise failed(errno.ENAMETOOLONG)
    if b"\0" in path:
        raise failed(errno.EINVAL)
    made: list[bytes] = []
    for name in path.split(b"/"):
        if name == b"..":
            del made[-1:]
        elif name not in {b"", b"."}:
            made.append(name)
    if len(made) > _MOST_STEPS:
        raise failed(errno.ENAMETOOLONG)
    return tuple(made)


def position(offset: int) -> int:
    """Refuse a place that no file can have."""
    if not 0 <= offset < 1 << 62:
        raise failed(errno.EFBIG)
    return offset


def there(name: bytes, fd: int) -> os.stat_result | None:
    """Tell what a name in an open folder is, if it is anything."""
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


class Tree:
    """An open folder."""

    def __init__(self, folder: str) -> None:
        self.top = os.open(folder, _STEP)

    @contextmanager
    def above(self, path: Steps) -> Iterator[tuple[int, bytes]]:
        """Open the folder that holds a path, and name the last step in it."""
        if not path:
            yield self.top, b"."
            return
        fd = self.top
        try:
            for name in path[:-1]:
                before, fd = fd, os.open(name, _STEP, dir_fd=fd)
                if before != self.top:
                    os.close(before)
            yield fd, path[-1]
        finally:
            if fd != self.top:
                os.close(fd)

    def look(self, path: Steps) -> os.stat_result:
        """Tell what a path is; a link is a link."""
        with self.above(path) as (fd, name):
            return os.stat(name, dir_fd=fd, follow_symlinks=False)

    def names(self, path: Steps) -> list[bytes]:
        """List a folder."""
        with self.above(path) as (above, name):
            fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | CAREFUL, dir_fd=above)
        try:
            return [os.fsencode(one) for one in os.listdir(fd)]
        finally:
            os.close(fd)

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self.top)
