"""The inotify queue: a thread that empties it into memory, and its raw records."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct
import termios
import threading
import time
from dataclasses import dataclass, field
from queue import SimpleQueue

from inotify_simple import INotify

#: One read takes more than the kernel holds with its default settings.
READ = 1 << 20
#: So many bytes are held in memory before the kernel has to hold the rest.
BACKLOG = 256 << 20
#: Seconds between two reads while earlier records wait; the kernel holds far more than come in it.
PAUSE = 0.003

#: Watch, mask, cookie, length of the name that follows.
HEADER = struct.Struct("iIII")


@dataclass(eq=False, slots=True)
class Chunk:
    """Records as they were read."""

    data: bytes
    #: All that the kernel had at this time is in it, or in one before it.
    since: float


@dataclass(eq=False, slots=True)
class WakeCall:
    """Something that is to be done between two chunks."""

    what: str
    done: threading.Event = field(default_factory=threading.Event, init=False)


Inbox = SimpleQueue[Chunk | WakeCall]


class InotifyQueue:
    """An inotify instance with a thread that reads it."""

    def __init__(self, inbox: Inbox) -> None:
        """Open an instance; records go to `inbox`."""
        self._inotify = INotify(nonblocking=True)
        self._inbox = inbox
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stopped = threading.Event()
        self._taken = threading.Event()
        self._held = 0
        #: Held while records are on their way from the kernel to the inbox.
        self.gate = threading.Lock()
        self._thread = threading.Thread(target=self._read, name="pilotage-inotify", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """End the thread and give the instance back."""
        self._stopped.set()
        self._taken.set()
        os.eventfd_write(self._wake, 1)
        if self._thread.is_alive():
            self._thread.join()
        self._inotify.close()
        os.close(self._wake)

    def watch(self, path: str, mask: int) -> int:
        """Watch a directory, or change what is asked of it; return its number."""
        return int(self._inotify.add_watch(path, mask))

    def unwatch(self, number: int) -> None:
        """Stop watching; the kernel may have done so already."""
        try:
            self._inotify.rm_watch(number)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise

    def taken(self, size: int) -> None:
        """Record that this many bytes were handled."""
        with self.gate:
            self._held -= size
        self._taken.set()

    def idle(self) -> bool:
        """Return whether there is nothing in the kernel nor in the inbox."""
        with self.gate:
            waiting = fcntl.ioctl(self._inotify.fileno(), termios.FIONREAD, b"\0\0\0\0")
            return self._inbox.empty() and not any(waiting)

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._inotify.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while not self._stopped.is_set():
            poll.poll()
            if self._held > BACKLOG:
                self._taken.wait()
                self._taken.clear()
                continue
            with self.gate:
                since = time.monotonic()
                try:
                    data = os.read(self._inotify.fileno(), READ)
                except BlockingIOError:
                    continue
                self._held += len(data)
                self._inbox.put(Chunk(data, since))
            if self._held > len(data):
                # Nothing waits for more: let the kernel gather some, and other threads run.
                time.sleep(PAUSE)
