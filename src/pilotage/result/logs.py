"""What attempts wrote: whole, the end of it, or as it grows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Literal

Name = Literal["stdout", "stderr"]
_BLOCK = 65536


def path(folder: str, name: Name) -> str:
    """Name the file that holds what an attempt wrote."""
    return f"{folder}/{name}"


def read(file: str, last: int | None = None) -> bytes:
    """Read what was written, or the last lines of it; a file that is not there is empty."""
    try:
        with open(file, "rb") as written:
            if last is None:
                return written.read()
            return _tail(written.fileno(), last)
    except FileNotFoundError:
        return b""


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
    """Say how much was written."""
    try:
        return os.stat(file).st_size
    except FileNotFoundError:
        return 0


def grow(
    file: str, start: int, ended: Callable[[], bool], pause: Callable[[], None]
) -> Iterator[bytes]:
    """Read what is written from `start` on, until the attempt has ended and all is read."""
    while True:
        # Asked before reading: what is written up to the end is then read for sure.
        over = ended()
        while piece := _piece(file, start):
            start += len(piece)
            yield piece
        if over:
            return
        pause()


def _piece(file: str, start: int) -> bytes:
    try:
        with open(file, "rb") as written:
            return os.pread(written.fileno(), _BLOCK, start)
    except FileNotFoundError:
        return b""
