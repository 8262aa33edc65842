"""A byte stream over files of a shared folder, for nodes that no network reaches.

    DIR/<stream>/open           the pilot has made the stream; the relay renames it to `taken`
    DIR/<stream>/up/000000      bytes of the pilot, in order; removed by the relay that read them
    DIR/<stream>/down/000000    bytes of the relay
    DIR/<stream>/closed         one side has ended; the other removes the folder

A chunk is written as `.part` and renamed, so that half of one is never read. Both sides use this
module: the pilot makes a `Stream` with `create`, the relay finds them with `waiting`.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import threading
import uuid

#: Bytes of one chunk, and chunks that may wait to be read, at most.
CHUNK = 1 << 20
MOST_WAITING = 64

_FASTEST_S = 0.02
_SLOWEST_S = 0.5
_SLOWER = 1.5


class SpoolStream:
    """One side of a stream."""

    def __init__(self, folder: str, outward: str, inward: str) -> None:
        self.folder = folder
        self._outward = os.path.join(folder, outward)
        self._inward = os.path.join(folder, inward)
        self._written = 0
        self._read = 0

    @classmethod
    def create(cls, root: str) -> SpoolStream:
        """Make a stream as its pilot."""
        folder = os.path.join(root, uuid.uuid4().hex)
        for name in ("up", "down"):
            os.makedirs(os.path.join(folder, name), mode=0o700)
        _touch(os.path.join(folder, "open"))
        return cls(folder, "up", "down")

    def write(self, data: bytes) -> None:
        """Append bytes, in as many chunks as they need."""
        for at in range(0, len(data), CHUNK):
            name = os.path.join(self._outward, f"{self._written:06d}")
            with open(f"{name}.part", "wb") as file:
                file.write(data[at : at + CHUNK])
            os.rename(f"{name}.part", name)
            self._written += 1

    def read(self) -> bytes | None:
        """Take the next chunk; empty if there is none yet, nothing if there will be none."""
        # Asked before the chunks are: what was written before the end must not be missed.
        ended = self.closed
        # A listing makes a network file system look again; an attempt to open may not.
        if f"{self._read:06d}" not in _names(self._inward):
            return None if ended else b""
        name = os.path.join(self._inward, f"{self._read:06d}")
        with open(name, "rb") as file:
            data = file.read()
        os.unlink(name)
        self._read += 1
        return data

    @property
    def closed(self) -> bool:
        """Return whether one side has ended."""
        return "closed" in (_names(self.folder) or {"closed"})

    @property
    def crowded(self) -> bool:
        """Return whether the other side has too much to read already."""
        return len(_names(self._outward)) >= MOST_WAITING

    def close(self) -> None:
        """End this side; the second side removes the folder."""
        if self.closed:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError):
                _touch(os.path.join(self.folder, "closed"))


def waiting(root: str) -> list[SpoolStream]:
    """Take the streams that pilots have made and no relay has taken, as the relay."""
    taken = []
    for name in sorted(_names(root)):
        folder = os.path.join(root, name)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.rename(os.path.join(folder, "open"), os.path.join(folder, "taken"))
            taken.append(SpoolStream(folder, "down", "up"))
    return taken


def close_abandoned(root: str) -> int:
    """End the streams that an earlier relay took, which it alone could go on with."""
    count = 0
    for name in _names(root):
        folder = os.path.join(root, name)
        if "taken" in _names(folder):
            SpoolStream(folder, "down", "up").close()
            count += 1
    return count


class Pump(threading.Thread):
    """Carries bytes between a socket and a stream until one of them ends."""

    def __init__(self, stream: SpoolStream, inner: socket.socket) -> None:
        super().__init__(name="spool", daemon=True)
        self._stream = stream
        self._socket = inner

    def run(self) -> None:
        """Carry bytes both ways; pauses grow while nothing moves."""
        pause = _FASTEST_S
        try:
            while True:
                sent = self._outward(pause)
                got = self._inward()
                if sent is None or got is None:
                    return
                pause = _FASTEST_S if sent or got else min(pause * _SLOWER, _SLOWEST_S)
        except OSError:
            # The folder or the other end of the socket is gone; both sides see a closed stream.
            return
        finally:
            self._socket.close()
            with contextlib.suppress(OSError):
                self._stream.close()

    def _outward(self, pause: float) -> bool | None:
        """Write what the socket has; wait for that as long as the pause is."""
        if self._stream.crowded:
            threading.Event().wait(pause)
            return False
        if not select.select([self._socket], [], [], pause)[0]:
            return False
        data = self._socket.recv(CHUNK)
        self._stream.write(data)
        return True if data else None

    def _inward(self) -> bool | None:
        """Give the socket what has arrived."""
        moved = False
        while True:
            data = self._stream.read()
            if not data:
                return None if data is None else moved
            self._socket.sendall(data)
            moved = True


def connect(root: str) -> socket.socket:
    """Open a stream as its pilot, and see it as a socket."""
    ours, theirs = socket.socketpair()
    Pump(SpoolStream.create(root), theirs).start()
    return ours


def settle(seconds: float) -> None:
    """Wait until the streams whose sockets are closed have ended, but no longer than so."""
    for thread in threading.enumerate():
        if isinstance(thread, Pump):
            thread.join(seconds)


def _names(folder: str) -> set[str]:
    try:
        return set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
