"""`X.pyz send ROOT`: files go out on standard output, none from outside of the root.

A line of standard input asks: {"files": [{"path", "offset", "size"}…]}, with the size that a file
must have; more lines may follow. For each file comes a line {"path", "size", "offset", "mode"} and
the bytes from the offset on, or {"path", "kind", "words"}.
A file that becomes shorter while it is sent ends the stream: the reader misses bytes then.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import sys
from collections.abc import Sequence
from typing import Any

_CHUNK = 1 << 20
_SET_PIPE_SIZE = 1031
_SHORT = 3
_KINDS = {errno.ENOENT: "missing", errno.ENOTDIR: "missing", errno.EACCES: "denied"}


class _Outside(Exception):
    """A path that the root does not hold."""


def main(words: Sequence[str]) -> int:
    """Send what is asked for, file after file."""
    root = os.path.realpath(words[0])
    with contextlib.suppress(OSError):
        fcntl.fcntl(1, _SET_PIPE_SIZE, _CHUNK)
    try:
        for line in iter(sys.stdin.buffer.readline, b""):
            for one in json.loads(line)["files"]:
                if not _send(root, one["path"], one["offset"], one.get("size")):
                    return _SHORT
    except BrokenPipeError:
        # Who asked has gone, and needs no words.
        return _SHORT
    return 0


def _send(root: str, path: str, offset: int, wanted: int | None) -> bool:
    """Send one file; return whether all of it was there."""
    try:
        file = _open(root, path)
    except OSError as error:
        kind = _KINDS.get(error.errno or 0, "other")
        _line({"path": path, "kind": kind, "words": str(error)})
        return True
    except (_Outside, ValueError) as error:
        _line({"path": path, "kind": "denied", "words": str(error)})
        return True
    try:
        facts = os.fstat(file)
        if wanted not in (None, facts.st_size):
            words = f"{path} has {facts.st_size} bytes, not {wanted}"
            _line({"path": path, "kind": "changed", "words": words})
            return True
        offset = min(max(offset, 0), facts.st_size)
        mode = stat.S_IMODE(facts.st_mode)
        _line({"path": path, "size": facts.st_size, "offset": offset, "mode": mode})
        return _copy(file, offset, facts.st_size)
    finally:
        os.close(file)


def _open(root: str, path: str) -> int:
    """Open a file that is really below the root, and really a file."""
    # Without waiting: a pipe of that name would keep us for ever.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # What was opened counts, not what the path says a moment earlier or later.
        real = os.path.realpath(f"/proc/self/fd/{file}")
        if real.startswith("/proc/"):
            real = os.path.realpath(path)
        if os.path.commonpath((root, real)) != root:
            raise _Outside(f"{path} is not below {root}")
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise _Outside(f"{path} is not a file")
    except BaseException:
        os.close(file)
        raise
    return file


def _copy(file: int, at: int, end: int) -> bool:
    while at < end:
        try:
            sent = os.sendfile(1, file, at, min(end - at, _CHUNK))
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS):
                raise
            data = os.pread(file, min(end - at, _CHUNK), at)
            _all(data)
            sent = len(data)
        if not sent:
            return False
        at += sent
    return True


def _line(value: dict[str, Any]) -> None:
    _all(json.dumps(value).encode() + b"\n")


def _all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]
