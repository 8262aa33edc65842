"""How much a client has taken, and how soon it may ask again."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .model import Bounds


class Room:
    """Bytes and entries that a client has added to a folder."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._size = 0
        self._entries = 0

    @property
    def left(self) -> int:
        """Tell how many bytes may still be added."""
        return self._bounds.size - self._size

    def grow(self, size: int) -> None:
        """Take bytes; negative ones are given back."""
        if size > self.left:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        # What was there before us may be removed as well, and earns nothing.
        self._size = max(0, self._size + size)

    @contextmanager
    def adding(self) -> Iterator[None]:
        """Take one entry, unless making it fails."""
        if self._entries >= self._bounds.entries:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        yield
        self._entries += 1

    def drop(self) -> None:
        """Give one entry back."""
        self._entries = max(0, self._entries - 1)


class Pace:
    """Lets so many requests through in a second, a second's worth of them at once."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._free = clock() - 1.0

    def delay(self) -> float:
        """Count a request; return the seconds that it has to wait."""
        now = self._clock()
        self._free = max(self._free, now - 1.0) + 1.0 / self._rate
        return max(0.0, self._free - now)
