"""Durable files: whole or not there at all, and on disk when a call returns.

A file is written under a hidden name beside its own, flushed, renamed, and its folder is flushed.
A crash at any point leaves the old content or the new, and perhaps a hidden file that no one reads.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator

from pilotage.base import crash

#: Crash points, in the order in which one write passes them.
POINTS = ("durable.written", "durable.flushed", "durable.renamed", "durable.kept")

#: Names of files that are not whole yet.
HIDDEN = re.compile(r"\.[0-9a-f]{32}\.part")

Path = str | os.PathLike[str]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
#: Some network file systems cannot flush a folder and need not; one that may not be listed cannot.
_NO_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)

#: What a file system without hard links answers.
_NO_LINK = (errno.EPERM, errno.ENOTSUP)


def write(path: Path, data: bytes | str, *, mode: int | None = None) -> None:
    """Replace a file or make it.

    `mode` is that of the new file, less the umask; without it, the mode of the old file stays.
    """
    with _part(path) as part:
        _fill(part, data, 0o666 if mode is None else mode, flush=True)
        if mode is None:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(part, stat.S_IMODE(os.stat(path).st_mode))
        _replace(part, path)
    sync_folder(os.path.dirname(path))
    crash.point("durable.kept")


def swap(path: Path, data: bytes | str, *, mode: int = 0o666, exact: int | None = None) -> None:
    """Do as `write` does without waiting for the disk: a power cut may lose it, or its content.

    For what is written again soon, and for what any reader can do without. `exact` is a mode that
    the umask does not change.
    """
    with _part(path) as part:
        _fill(part, data, mode, flush=False)
        if exact is not None:
            os.chmod(part, exact)
        _replace(part, path)


def create(path: Path, data: bytes | str, *, mode: int = 0o666) -> None:
    """Make a file; raise `FileExistsError` and leave it alone if the name is taken."""
    with _part(path) as part:
        _fill(part, data, mode, flush=True)
        try:
            os.link(part, path)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            # The second best: after a crash there may be a part of it under its name.
            _fill(os.fspath(path), data, mode, flush=True)
        crash.point("durable.renamed")
        os.unlink(part)
    sync_folder(os.path.dirname(path))
    crash.point("durable.kept")


def rename(source: Path, target: Path) -> None:
    """Rename a file or folder whose content is on disk, replacing the target."""
    _replace(source, target)
    sync_folder(os.path.dirname(target))
    crash.point("durable.kept")


def remove(path: Path) -> None:
    """Remove a file if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
        sync_folder(os.path.dirname(path))


def folder(path: Path, *, mode: int = 0o777) -> None:
    """Make a folder and those above it that are missing; `mode`, less the umask, is for each."""
    above = os.path.dirname(path)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    except FileNotFoundError:
        if not above:
            raise
        folder(above, mode=mode)
        folder(path, mode=mode)
    else:
        sync_folder(above)


def sync_file(file: int | Path) -> None:
    """Flush the content of a file to disk: one that is open, or one by its name."""
    if isinstance(file, int):
        os.fsync(file)
        return
    opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_folder(path: Path) -> None:
    """Flush the names in a folder to disk, where its file system can do that."""
    try:
        opened = os.open(path or ".", _FOLDER)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
    except OSError as error:
        if error.errno not in _NO_FLUSH:
            raise


def hidden(path: Path) -> str:
    """Return an unused name beside a file; rules and listings ignore names like it."""
    return os.path.join(os.path.dirname(path), f".{secrets.token_hex(16)}.part")


def aside(path: str, content: str) -> str:
    """Return the hidden name of a file that is put together over several attempts.

    It is the same for the same path and `content`, so that another attempt goes on with it.
    """
    folder, name = os.path.split(path)
    mark = hashlib.sha256(os.fsencode(f"{name}\0{content}")).hexdigest()[:32]
    return os.path.join(folder, f".{mark}.part")


def _fill(part: str, data: bytes | str, mode: int, *, flush: bool) -> None:
    with open(os.open(part, _NEW, mode), "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        crash.point("durable.written")
        if flush:
            os.fsync(file.fileno())
            crash.point("durable.flushed")


def _replace(source: Path, target: Path) -> None:
    os.replace(source, target)
    crash.point("durable.renamed")


@contextlib.contextmanager
def _part(path: Path) -> Iterator[str]:
    """Name a hidden file for what is to be at `path`; on an error nothing is left of it."""
    part = hidden(path)
    try:
        yield part
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def write_all(file: int, data: bytes | memoryview, at: int) -> None:
    """Write all of it at an offset."""
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, at)
        view, at = view[done:], at + done
