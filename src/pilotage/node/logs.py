"""What payloads write, sent on while they run: the head and the tail if it is too much."""

from __future__ import annotations

import os
import stat

#: Bytes that go with the report of the end rather than before it, at most.
INLINE = 1 << 14


class Tail:
    """One file that a payload writes, as the hub sees it.

    What the hub gets is a text of its own: the whole file, or its head, a line that says how much
    is left out, and its tail. Offsets are those of that text.
    """

    def __init__(self, path: str, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._head = limit // 2
        self._size = 0
        self._note = b""
        self._over = False
        #: Up to where it was sent, and up to where the hub is known to have it.
        self.sent = 0
        self.safe = 0
        #: Up to where it was ever sent: the hub may have that, whether or not it is known to.
        self._reached = 0
        #: Where that part begins which goes with the report of the end.
        self.last = 0

    def look(self) -> bool:
        """Tell whether there is something to send."""
        if not self._over:
            try:
                found = os.stat(self._path, follow_symlinks=False)
            except OSError:
                return False
            self._size = found.st_size if stat.S_ISREG(found.st_mode) else 0
        return self.sent < self._until()

    def finish(self) -> None:
        """Settle what the hub will get, now that nobody writes any more."""
        self.look()
        self._over = True
        if self._size > self._limit:
            left_out = self._size - self._limit
            self._note = f"\n[... {left_out} bytes are left out here ...]\n".encode()
        self.last = max(self._reached, self._length() - INLINE)

    def take(self, count: int) -> bytes:
        """Read the next bytes to send."""
        data = self._read(self.sent, min(count, self._until() - self.sent))
        self.sent += len(data)
        self._reached = max(self._reached, self.sent)
        return data

    def rest(self) -> bytes:
        """Read the part that goes with the report of the end."""
        return self._read(self.last, self._length() - self.last)

    def rewind(self) -> None:
        """Begin again where the hub is known to have it."""
        self.sent = self.safe

    def _length(self) -> int:
        return min(self._size, self._limit) + len(self._note)

    def _until(self) -> int:
        return self.last if self._over else min(self._size, self._head)

    def _read(self, at: int, count: int) -> bytes:
        """Read of the text that the hub gets."""
        if count <= 0:
            return b""
        if not self._note or at < self._head:
            end = self._head if self._note else self._size
            first = self._pread(at, min(count, end - at))
            return first + self._read(at + len(first), count - len(first)) if first else b""
        after = self._head + len(self._note)
        note = self._note[at - self._head : at - self._head + count] if at < after else b""
        skipped = self._size - self._limit - len(self._note)
        return note + self._pread(at + len(note) + skipped, count - len(note))

    def _pread(self, at: int, count: int) -> bytes:
        """Read of the file, never of what a payload may have put in its place."""
        if count <= 0:
            return b""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.pread(fd, count, at) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        finally:
            os.close(fd)
