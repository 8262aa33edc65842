"""Trees of files here: listed, hashed and copied."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator

from pilotage.base import durable, errors, paths, text
from pilotage.data.transfer import failures
from pilotage.data.transfer.model import UNKNOWN, TransferItem
from pilotage.data.transfer.version import Version

CHUNK = 1 << 20


def walk(top: str) -> Iterator[TransferItem]:
    """Give every file of a folder, in order; what is neither file nor folder is refused."""
    try:
        for name, facts in paths.walk(top):
            yield item(name, facts)
    except OSError as error:
        raise failures.of_reading(error) from error


def item(name: str, facts: os.stat_result) -> TransferItem:
    """Describe a file."""
    if not stat.S_ISREG(facts.st_mode):
        raise errors.Denied(f"{text.show(name)} is neither a file nor a folder")
    stored = facts.st_blocks * 512
    return TransferItem(
        name=name,
        size=facts.st_size,
        mtime=facts.st_mtime_ns,
        mark=":".join(str(part) for part in Version.of(facts)),
        executable=bool(facts.st_mode & 0o100),
        stored=stored if stored < facts.st_size else UNKNOWN,
    )


def digest(file: int) -> str:
    """Hash an open file from its beginning."""
    found = hashlib.sha256()
    buffer = memoryview(bytearray(CHUNK))
    at = 0
    while got := os.preadv(file, [buffer], at):
        found.update(buffer[:got])
        at += got
    return found.hexdigest()


def copy(source: int, target: int, at: int, size: int) -> None:
    """Copy a file from an offset on; holes stay holes."""
    os.ftruncate(target, at)
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
            end = min(size, os.lseek(source, start, os.SEEK_HOLE))
        except OSError:
            # Nothing but a hole, or a file system that knows of none and ends here.
            break
        while start < end:
            data = os.pread(source, min(CHUNK, end - start), start)
            if not data:
                return
            durable.write_all(target, data, start)
            start += len(data)
        at = end
    os.ftruncate(target, size)
