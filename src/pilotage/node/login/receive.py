"""`X.pyz receive ROOT`: content arrives on standard input, and is checked before it is kept.

A record is a line of JSON, the bytes of its spans in their order, and, if the line has no digest,
a second line with it: so the sender hashes while it sends.

    {"name": hex, "digest": hex | null, "size": n, "part": file name | null,
     "spans": [[offset, length]…], "names": [hex…]}

What the spans do not give is in the part already. Every receiver writes a file of its own and takes
a part over by renaming it, so two that bring the same file do not disturb each other. One line
answers each record: {"name", "ok", "digest"} or {"name", "ok": false, "kind", "words"}.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Callable, NamedTuple

from . import cache

#: Bytes of a buffer, and buffers between the reading and the summing.
BUFFER = 1 << 20
_BUFFERS = 4
#: Bytes after which the file system is told to begin writing what it got.
_FLUSH = 32 << 20


class RecordRefused(Exception):
    """A record cannot be kept; the stream goes on behind it."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind


class StreamCut(Exception):
    """The stream has ended within a record."""


class FilePiece(NamedTuple):
    """Bytes of the file that come from one place."""

    offset: int
    length: int
    #: Whether they come from the stream; the others are in the part.
    sent: bool


def layout(head: dict[str, Any]) -> list[FilePiece]:
    """Put the pieces of a record in the order of the file; no byte is open or given twice."""
    given = sorted(FilePiece(at, length, True) for at, length in head["spans"])
    whole: list[FilePiece] = []
    end = 0
    for piece in given:
        if piece.length <= 0 or piece.offset < end:
            raise RecordRefused("usage", "the pieces of a record overlap")
        if piece.offset > end:
            whole.append(FilePiece(end, piece.offset - end, False))
        whole.append(piece)
        end = piece.offset + piece.length
    if end < head["size"]:
        whole.append(FilePiece(end, head["size"] - end, False))
    if end > head["size"]:
        raise RecordRefused("usage", "the pieces of a record are longer than the file")
    if not head["part"] and any(not one.sent for one in whole):
        raise RecordRefused("usage", "a record does not give the whole file")
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
            raise RecordRefused("part", "the part to resume from is gone") from error
        self._unflushed = 0
        self._flusher: threading.Thread | None = None

    def fill(self, piece: FilePiece, stream: BinaryIO, total: Sum) -> None:
        """Write one piece, or read it if it is there; add it to the sum."""
        os.lseek(self._file, piece.offset, os.SEEK_SET)
        left = piece.length
        while left:
            buffer = total.buffer()
            view = memoryview(buffer)[: min(left, BUFFER)]
            if piece.sent:
                got = stream.readinto(view)  # type: ignore[attr-defined]
                if not got:
                    raise StreamCut
            else:
                got = os.preadv(self._file, [view], piece.offset + piece.length - left)
                if not got:
                    raise RecordRefused("part", "the site has less of the file than was agreed")
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
        """Close the file."""
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
        raise RecordRefused("disk", f"{needed} bytes are needed, {free} are free")


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


_LONGEST_LINE = 1 << 26
_SET_PIPE_SIZE = 1031
#: Files that wait to be on disk for certain; each is open.
_FINISHERS = 8
_UNFINISHED = 64
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def main(words: Sequence[str]) -> int:
    """Serve one channel until its end; the status tells whether all of it was kept."""
    for end in (0, 1):
        with contextlib.suppress(OSError):
            fcntl.fcntl(end, _SET_PIPE_SIZE, 1 << 20)
    with open(0, "rb", buffering=1 << 16, closefd=False) as stream:
        return Receiver(words[0], stream, _say).run()


def _say(answer: dict[str, Any]) -> None:
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


class Receiver:
    """Keeps the records of one stream."""

    def __init__(self, root: str, stream: BinaryIO, say: Callable[[dict[str, Any]], None]) -> None:
        self._root = root
        self._stream = stream
        self._say = say
        self._lock = threading.Lock()
        self._sum = Sum()
        self._pool = concurrent.futures.ThreadPoolExecutor(_FINISHERS)
        self._room = threading.Semaphore(_UNFINISHED)
        self._good = True

    def run(self) -> int:
        """Take records until there are no more."""
        try:
            while line := self._stream.readline(_LONGEST_LINE):
                self._record(json.loads(line))
        except (StreamCut, ValueError):
            # Half a line is a cut too.
            self._good = False
        except OSError as error:
            if error.errno not in _FULL:
                raise
            # The sender must stop: it reads the words, and the closed pipe ends it.
            self._good = False
        finally:
            self._sum.close()
            self._pool.shutdown()
        return 0 if self._good else 1

    def _record(self, head: dict[str, Any]) -> None:
        name, spans = str(head["name"]), head["spans"]
        try:
            pieces = layout(head)
            arriving = Arriving(self._root, head)
        except (RecordRefused, OSError) as error:
            self._refuse(name, error)
            self._skip(sum(length for _, length in spans), head)
            return
        try:
            for piece in pieces:
                arriving.fill(piece, self._stream, self._sum)
            found = self._sum.result()
            digest = head["digest"] or self._late()
        except OSError as error:
            arriving.close()
            self._refuse(name, error)
            raise
        except RecordRefused as error:
            # Only what the site gave itself can fail so: the rest of the stream is not understood.
            arriving.discard()
            self._refuse(name, error)
            raise StreamCut from error
        except StreamCut:
            arriving.leave()
            raise
        if found != digest:
            arriving.discard()
            self._refuse(name, RecordRefused("mismatch", "the content does not match its digest"))
            return
        self._room.acquire()
        self._pool.submit(self._finish, arriving, head, found)

    def _finish(self, arriving: Arriving, head: dict[str, Any], digest: str) -> None:
        """Make sure that it is on disk, then show it; in a thread of its own."""
        try:
            arriving.keep(digest)
            for name in head.get("names", ()):
                cache.call(self._root, name, digest)
            self._answer({"name": head["name"], "ok": True, "digest": digest})
        except (OSError, ValueError) as error:
            self._refuse(head["name"], error)
        finally:
            self._room.release()

    def _late(self) -> str:
        line = self._stream.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise StreamCut
        return str(json.loads(line)["digest"])

    def _skip(self, length: int, head: dict[str, Any]) -> None:
        while length:
            data = self._stream.read(min(length, BUFFER))
            if not data:
                raise StreamCut
            length -= len(data)
        if not head["digest"]:
            self._late()

    def _refuse(self, name: str, error: Exception) -> None:
        self._good = False
        kind = "other"
        if isinstance(error, RecordRefused):
            kind = error.kind
        elif isinstance(error, OSError) and error.errno in _FULL:
            kind = "disk"
        self._answer({"name": name, "ok": False, "kind": kind, "words": str(error)})

    def _answer(self, answer: dict[str, Any]) -> None:
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._say(answer)
