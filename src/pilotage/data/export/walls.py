"""A folder within walls: what its client may do, whatever paths and links it makes up.

Nothing here knows of SSH. One thing is done at a time, so a jail that was shut does nothing more,
and the number of a closed file cannot be taken for that of another.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Collection
from typing import ParamSpec, TypeVar

from .files import Files
from .guard import Guard
from .model import Bounds
from .names import Names
from .room import Room
from .tree import Tree, failed

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Jail:
    """A folder, its open files and its names."""

    def __init__(self, folder: str, readonly: Collection[str], bounds: Bounds) -> None:
        self._lock = threading.Lock()
        self._shut = False
        self._tree = Tree(folder)
        try:
            guard = Guard(self._tree, readonly)
        except OSError:
            self._tree.close()
            raise
        room = Room(bounds)
        self.files = Files(self._tree, guard, room, bounds.handles)
        self.names = Names(self._tree, guard, room, self.files)

    def do(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Do something with the files or names of this jail, unless it was shut."""
        with self._lock:
            if self._shut:
                raise failed(errno.ESHUTDOWN)
            return work(*args, **kwargs)

    def close(self) -> None:
        """Wait for what is being done and close every file; nothing is possible any more."""
        with self._lock:
            if not self._shut:
                self._shut = True
                self.files.close_all()
                self._tree.close()
