"""What in a jail is for reading only."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection

from .tree import Steps, Tree, failed, steps


class Guard:
    """Keeps inputs as they are: by their paths, and by what the paths led to at first.

    An input may be a hard link to a file of the user's, so whatever had another name for it could
    write to that file.
    """

    def __init__(self, tree: Tree, readonly: Collection[str]) -> None:
        self._paths = {steps(os.fsencode(name)) for name in readonly}
        #: The folders around inputs, which must stay where they are.
        self._around = {path[:size] for path in self._paths for size in range(len(path))} | {()}
        self._files = {file for path in self._paths for file in _files(tree, path)}

    def writing(self, path: Steps) -> None:
        """Refuse if a path is an input or lies in one."""
        if any(path[:size] in self._paths for size in range(len(path) + 1)):
            raise failed(errno.EACCES)

    def moving(self, path: Steps) -> None:
        """Refuse if a path cannot be removed, replaced or renamed: it has an input in it, too."""
        self.writing(path)
        if path in self._around:
            raise failed(errno.EACCES)

    def touching(self, what: os.stat_result) -> None:
        """Refuse if this is an input, by whatever name."""
        if (what.st_dev, what.st_ino) in self._files:
            raise failed(errno.EACCES)


def _files(tree: Tree, path: Steps) -> set[tuple[int, int]]:
    """Tell what a path leads to, and everything below it."""
    found, left = set(), [path]
    while left:
        one = left.pop()
        what = tree.look(one)
        found.add((what.st_dev, what.st_ino))
        if stat.S_ISDIR(what.st_mode):
            left += [(*one, name) for name in tree.names(one)]
    return found
