"""Measure what a payload has written, a little at a time."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator

from .reach import descendants

#: How long one look may take, and how rarely a tree is looked at for the second time.
_LOOK_SECONDS = 0.005
_REST_SECONDS = 0.5


class Gauge:
    """Size of a directory, and of open files that are deleted."""

    def __init__(self, place: bytes, pid: int, limit: int) -> None:
        self.limit = limit
        self._place = place
        self._pid = pid
        self._walk: Iterator[int] = iter(())
        self._sum = 0
        self._due = 0.0
        self._begun = 0.0

    def look(self) -> int:
        """Go on measuring for a moment; return what is known to be used."""
        now = time.monotonic()
        if now < self._due:
            return 0
        if not self._begun:
            self._walk, self._sum, self._begun = self._all(), 0, now
        for size in self._walk:
            self._sum += size
            if self._sum > self.limit or time.monotonic() > now + _LOOK_SECONDS:
                return self._sum
        # Large trees take many looks and need not be measured without a pause.
        self._due = now + max(_REST_SECONDS, now - self._begun)
        self._begun = 0.0
        return self._sum

    def _all(self) -> Iterator[int]:
        yield from _named(self._place)
        yield from _nameless(self._pid)


def _named(place: bytes) -> Iterator[int]:
    """Yield the size of each file below a folder."""
    folders = [place]
    while folders:
        try:
            entries = os.scandir(folders.pop())
        except OSError:
            # It vanished or shut us out; what is hidden counts when it is open.
            continue
        with entries:
            for entry in entries:
                try:
                    yield entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                except OSError:
                    continue


def _nameless(pid: int) -> Iterator[int]:
    """Yield the size of each file that only the payload's processes still hold."""
    seen = set()
    for one in (pid, *descendants(pid)):
        folder = f"/proc/{one}/fd"
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                what = os.stat(f"{folder}/{name}")
            except OSError:
                continue
            if stat.S_ISREG(what.st_mode) and not what.st_nlink and what.st_ino not in seen:
                seen.add(what.st_ino)
                yield what.st_blocks * 512
