"""Output of attempts: whole, its end, or as it grows."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO, Literal

from pilotage.store import Db

Name = Literal["stdout", "stderr"]
_BLOCK = 65536
#: How long the log of a job at a site with an agent is brought after it was last read, in seconds.
_FOLLOW_S = 20.0


def due(db: Db, job: int, now: float) -> bool:
    """Return whether the log of a job will be brought only if it is asked for again."""
    return db.value("edge_follow_due", job=job, until=now + _FOLLOW_S / 2) is not None


def follow(db: Db, job: int, now: float) -> None:
    """Fetch the log of a job at an edge site for a while."""
    db.run("edge_follow", job=job, until=now + _FOLLOW_S)


def path(folder: str, name: Name) -> str:
    """Name the file that holds what an attempt wrote."""
    return f"{folder}/{name}"


def read(file: str, last: int | None = None) -> bytes:
    """Read what was written, or the last lines of it; a file that is not there is empty."""
    try:
        with _open(file) as written:
            if last is None:
                return written.read()
            return _tail(written.fileno(), last)
    except FileNotFoundError:
        return b""


def _open(file: str) -> BinaryIO:
    """Open what a payload wrote; it must not make us read something else, or wait for ever."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise FileNotFoundError(file) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(file)
    return os.fdopen(handle, "rb")


def _tail(file: int, last: int) -> bytes:
    """Read backwards until there are enough lines, so that a large file costs no more."""
    end = os.fstat(file).st_size
    found = b""
    while end > 0 and found.count(b"\n") <= last:
        start = max(0, end - _BLOCK)
        found = os.pread(file, end - start, start) + found
        end = start
    lines = found.splitlines(keepends=True)
    return b"".join(lines[-last:]) if last else b""


def size(file: str) -> int:
    """Return how much was written."""
    try:
        return os.stat(file, follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def piece(file: str, start: int) -> bytes:
    """Read some of what was written from `start` on; nothing means that there is no more yet."""
    try:
        with _open(file) as written:
            return os.pread(written.fileno(), _BLOCK, start)
    except FileNotFoundError:
        return b""
