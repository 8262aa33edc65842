"""A file of the cache while it arrives, and the sum of its bytes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from . import cache

#: Bytes of a buffer, and buffers between the reading and the summing.
BUFFER = 1 << 20
_BUFFERS = 4
#: Bytes after which the file system is told to begin writing what it got.
_FLUSH = 32 << 20


class Refusal(Exception):
    """A record cannot be kept; the stream goes on behind it."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind


class Cut(Exception):
    """The stream has ended within a record."""


class Piece(NamedTuple):
    """Bytes of the file that come from one place."""

    offset: int
    length: int
    #: Whether they come from the stream; the others are in the part.
    sent: bool


def layout(head: dict[str, Any]) -> list[Piece]:
    """Put the pieces of a record in the order of the file; no byte is open or given twice."""
    given = sorted(Piece(at, length, True) for at, length in head["spans"])
    whole: list[Piece] = []
    end = 0
    for piece in given:
        if piece.length <= 0 or piece.offset < end:
            raise Refusal("usage", "the pieces of a record overlap")
        if piece.offset > end:
            whole.append(Piece(end, piece.offset - end, False))
        whole.append(piece)
        end = piece.offset + piece.length
    if end < head["size"]:
        whole.append(Piece(end, head["size"] - end, False))
    if end > head["size"]:
        raise Refusal("usage", "the pieces of a record are longer than the file")
    if not head["part"] and any(not one.sent for one in whole):
        raise Refusal("usage", "a record does not give the whole file")
    return whole


class Arriving:
    """A file of the cache before it is one."""

    def __init__(self, root: str, head: dict[str, Any]) -> None:
        self._root = root
        self._size = head["size"]
        name = head["name"]
        self._path = cache.part(root, name)
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        _check_room(root, sum(length for _, length in head["spans"]))
        try:
            if head["part"]:
                os.rename(cache.part(root, name, head["part"]), self._path)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
        except FileNotFoundError as error:
            raise Refusal("part", "the part to go on with is gone") from error
        self._unflushed = 0
        self._flusher: threading.Thread | None = None

    def fill(self, piece: Piece, stream: BinaryIO, total: Sum) -> None:
        """Write one piece, or read it if it is there; add it to the sum."""
        os.lseek(self._file, piece.offset, os.SEEK_SET)
        left = piece.length
        while left:
            buffer = total.buffer()
            view = memoryview(buffer)[: min(left, BUFFER)]
            if piece.sent:
                got = stream.readinto(view)  # type: ignore[attr-defined]
                if not got:
                    raise Cut
            else:
                got = os.preadv(self._file, [view], piece.offset + piece.length - left)
                if not got:
                    raise Refusal("part", "the site has less of the file than was agreed")
            if piece.sent:
                self._write(view[:got])
            total.add(buffer, got)
            left -= got

    def _write(self, data: memoryview) -> None:
        while data:
            written = os.write(self._file, data)
            data = data[written:]
            self._unflushed += written
        busy = self._flusher is not None and self._flusher.is_alive()
        if self._unflushed >= _FLUSH and not busy:
            # Otherwise all of it would have to go to the disk when the last byte is here.
            self._unflushed = 0
            self._flusher = threading.Thread(target=_flush, args=(self._file,), daemon=True)
            self._flusher.start()

    def keep(self, digest: str) -> None:
        """Show the file under its digest, for good."""
        self._settle()
        try:
            os.ftruncate(self._file, self._size)
            os.fchmod(self._file, 0o444)
            os.fsync(self._file)
            target = cache.place(self._root, digest)
            if cache.use(self._root, digest):
                # Another was faster; submissions may have linked that one already.
                self.discard()
                return
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            try:
                os.rename(self._path, target)
            except FileNotFoundError:
                # Somebody went on with it meanwhile, and may have finished.
                if not cache.use(self._root, digest):
                    raise
        finally:
            self.close()

    def leave(self) -> None:
        """Keep what is here for somebody to go on with, if that is worth it."""
        useful = os.fstat(self._file).st_size >= cache.STEP
        if useful:
            self.close()
        else:
            self.discard()

    def discard(self) -> None:
        """Remove it."""
        self.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def close(self) -> None:
        """Let the files go."""
        self._settle()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _settle(self) -> None:
        if self._flusher is not None:
            self._flusher.join()


def _check_room(root: str, needed: int) -> None:
    """Refuse to fill a disk to the last byte: others use it too."""
    facts = os.statvfs(root)
    free = facts.f_bavail * facts.f_frsize
    if needed > free:
        raise Refusal("disk", f"{needed} bytes are needed, {free} are free")


def _flush(file: int) -> None:
    with contextlib.suppress(OSError):
        os.fdatasync(file)


class Sum:
    """A SHA-256 that is computed beside the reading and writing."""

    def __init__(self) -> None:
        self._free: queue.Queue[bytearray] = queue.Queue()
        for _ in range(_BUFFERS):
            self._free.put(bytearray(BUFFER))
        self._full: queue.Queue[tuple[bytearray, int] | None] = queue.Queue()
        self._results: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._work, daemon=True).start()

    def buffer(self) -> bytearray:
        """Wait for a buffer that may be filled."""
        return self._free.get()

    def add(self, buffer: bytearray, length: int) -> None:
        """Add the first bytes of a buffer; it is free again when they were."""
        self._full.put((buffer, length))

    def result(self) -> str:
        """Return the sum of what was added since the last result."""
        self._full.put((bytearray(), 0))
        return self._results.get()

    def close(self) -> None:
        """End the thread."""
        self._full.put(None)

    def _work(self) -> None:
        for digest in iter(hashlib.sha256, None):
            for buffer, length in self._until_result():
                digest.update(memoryview(buffer)[:length])
                self._free.put(buffer)
            if self._ended:
                return
            self._results.put(digest.hexdigest())

    def _until_result(self) -> Iterator[tuple[bytearray, int]]:
        self._ended = False
        while (one := self._full.get()) is not None:
            if not one[1]:
                return
            yield one
        self._ended = True
