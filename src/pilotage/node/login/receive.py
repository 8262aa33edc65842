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
import json
import os
import threading
from collections.abc import Sequence
from typing import Any, BinaryIO, Callable

from . import cache
from .arriving import BUFFER, Arriving, Cut, Refusal, Sum, layout

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
        except (Cut, ValueError):
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
        except (Refusal, OSError) as error:
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
        except Refusal as error:
            # Only what the site gave itself can fail so: the rest of the stream is not understood.
            arriving.discard()
            self._refuse(name, error)
            raise Cut from error
        except Cut:
            arriving.leave()
            raise
        if found != digest:
            arriving.discard()
            self._refuse(name, Refusal("mismatch", "what arrived is not what was announced"))
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
            raise Cut
        return str(json.loads(line)["digest"])

    def _skip(self, length: int, head: dict[str, Any]) -> None:
        while length:
            data = self._stream.read(min(length, BUFFER))
            if not data:
                raise Cut
            length -= len(data)
        if not head["digest"]:
            self._late()

    def _refuse(self, name: str, error: Exception) -> None:
        self._good = False
        kind = "other"
        if isinstance(error, Refusal):
            kind = error.kind
        elif isinstance(error, OSError) and error.errno in _FULL:
            kind = "disk"
        self._answer({"name": name, "ok": False, "kind": kind, "words": str(error)})

    def _answer(self, answer: dict[str, Any]) -> None:
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._say(answer)
