"""Wait until something changes in a folder; of network file systems only what this node does."""

from __future__ import annotations

import ctypes
import os
import select
import time

_NEW = 0x00000080 | 0x00000100  # IN_MOVED_TO | IN_CREATE
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class Watch:
    """The kernel's news of a folder, where it has some."""

    def __init__(self, folder: str) -> None:
        self._poll = select.poll()
        self._fd = _watched(folder)
        if self._fd is not None:
            self._poll.register(self._fd, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Wait for a change, but no longer than so."""
        if self._fd is None:
            time.sleep(seconds)
        elif self._poll.poll(seconds * 1000):
            try:
                os.read(self._fd, 1 << 16)
            except OSError:
                time.sleep(seconds)


def _watched(folder: str) -> int | None:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        fd = int(libc.inotify_init1(_FLAGS))
        if fd < 0:
            return None
        if libc.inotify_add_watch(fd, os.fsencode(folder), _NEW) < 0:
            os.close(fd)
            return None
    except (OSError, AttributeError):
        return None
    return fd
