"""Durable files: complete and flushed to disk when a call returns."""

from __future__ import annotations

import contextlib
import os

#: A name that a payload may have put there must not lead us elsewhere.
_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def write(path: str, data: bytes | str, part: str = "") -> None:
    """Put a file in its place, by way of a name beside it."""
    part = part or f"{path}.part"
    fill(part, data)
    os.rename(part, path)
    sync(os.path.dirname(path))


def fill(path: str, data: bytes | str) -> None:
    """Write a file under a temporary name; remove it if that fails."""
    try:
        with open(os.open(path, _ANEW, 0o600), "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = path
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def folder(path: str) -> None:
    """Make a folder and those above it; each name is on disk."""
    above = os.path.dirname(path)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    except FileNotFoundError:
        folder(above)
        folder(path)
    else:
        sync(above)


def sync(path: str) -> None:
    """Have the names in a folder on disk."""
    fd = os.open(path, _FOLDER)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
