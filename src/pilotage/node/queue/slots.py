"""The cores of this machine, as locks: what a supervisor that dies held is free at once."""

from __future__ import annotations

import fcntl
import os


class Slots:
    """What one supervisor holds; the one whose turn it is takes what gets free."""

    def __init__(self, root: str, count: int) -> None:
        self._folder = os.path.join(root, ".slots")
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._count = count
        self._turn = self._open("turn")
        self._mine = False
        #: What was taken but does not suffice yet.
        self._some: list[int] = []

    def take(self, cores: int, *, wait: bool) -> list[int] | None:
        """Take so many cores, or none; `wait` says that there is nothing to do before our turn."""
        if not self._mine and not _lock(self._turn, wait=wait):
            return None
        self._mine = True
        for number in range(self._count):
            if len(self._some) == cores:
                break
            slot = self._open(str(number))
            # Of two descriptors of ours for one file, only the first gets the lock.
            if _lock(slot, wait=False):
                self._some.append(slot)
            else:
                os.close(slot)
        if len(self._some) < cores:
            return None
        taken, self._some = self._some, []
        self._mine = False
        fcntl.flock(self._turn, fcntl.LOCK_UN)
        return taken

    def _open(self, name: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        return os.open(os.path.join(self._folder, name), flags, 0o600)


def free(taken: list[int]) -> None:
    """Let cores go."""
    for slot in taken:
        os.close(slot)


def _lock(fd: int, *, wait: bool) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
