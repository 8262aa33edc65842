"""Files fetched from a site: each is beside its place until it is verified."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading

import msgspec

from pilotage.base import durable, errors, paths, text
from pilotage.data.stage.model import BIG, WantedFile, WantedFolder

_CHUNK = 1 << 20
#: Bytes after which written data is flushed.
_FLUSH = 32 << 20
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class DigestMismatch(Exception):
    """A resumed file does not have the announced digest."""


class Landing:
    """One file, from its first byte to its place."""

    def __init__(self, wanted: WantedFile) -> None:
        self.wanted = wanted
        self.path = durable.aside(wanted.local, wanted.sha256)
        self.offset = self._arrived()
        self._unflushed = 0
        self._flusher: threading.Thread | None = None

    def _arrived(self) -> int:
        """Return how many bytes an earlier attempt has left."""
        try:
            size = os.lstat(self.path).st_size
        except OSError:
            return 0
        return size if BIG <= size <= self.wanted.size else 0

    def open(self) -> None:
        """Begin, or go on behind what has arrived."""
        self._file = os.open(self.path, _OPEN, 0o666)
        try:
            os.ftruncate(self._file, self.offset)
            self._sum = hashlib.sha256()
            left = self.offset
            while left:
                data = os.read(self._file, min(left, _CHUNK))
                self._sum.update(data)
                left -= len(data)
        except OSError:
            self.close()
            raise

    def add(self, data: memoryview) -> None:
        """Write the next bytes."""
        self._sum.update(data)
        self._unflushed += len(data)
        while data:
            data = data[os.write(self._file, data) :]
        busy = self._flusher is not None and self._flusher.is_alive()
        if self._unflushed >= _FLUSH and not busy:
            # Otherwise all of it would have to go to the disk when the last byte is here.
            self._unflushed = 0
            self._flusher = threading.Thread(target=_flush, args=(self._file,), daemon=True)
            self._flusher.start()

    def close(self) -> None:
        """Leave what has arrived for the next attempt."""
        if self._flusher is not None:
            self._flusher.join()
        os.close(self._file)

    def finish(self, *, executable: bool) -> None:
        """Check it, and put it in its place for good."""
        self.check(executable=executable)
        self.show()
        durable.sync_folder(os.path.dirname(self.wanted.local))

    def check(self, *, executable: bool) -> None:
        """Check that it has the announced digest, and is on disk."""
        try:
            if self._sum.hexdigest() != self.wanted.sha256:
                os.unlink(self.path)
                raise DigestMismatch if self.offset else changed(self.wanted)
            if executable:
                mode = os.fstat(self._file).st_mode
                os.fchmod(self._file, (mode | (mode & 0o444) >> 2) & 0o777)
            durable.sync_file(self._file)
        finally:
            self.close()

    def show(self) -> None:
        """Put it in its place."""
        try:
            os.rename(self.path, self.wanted.local)
        except (IsADirectoryError, NotADirectoryError) as error:
            where = text.show(self.wanted.local)
            raise errors.Conflict(f"{where} is a folder, but a file must be put there") from error


def _flush(file: int) -> None:
    with contextlib.suppress(OSError):
        os.fdatasync(file)


def changed(wanted: WantedFile) -> errors.Conflict:
    """Return the error for a file that differs from the evidence of its job."""
    return errors.Conflict(
        f"{text.show(wanted.remote)} at the site is not what the job left there",
        hint="something that outlived the job may have written it",
    )


class LandingPlan(msgspec.Struct, frozen=True):
    """Files to fetch, and a folder to rename when all of them are there."""

    files: list[WantedFile]
    made: str = ""
    target: str = ""

    def show(self) -> None:
        """Put a new folder in its place."""
        if not self.made:
            return
        for folder, _, _ in os.walk(self.made, topdown=False):
            durable.sync_folder(folder)
        try:
            os.rename(self.made, self.target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            _merge(self.made, self.target)
        durable.sync_folder(os.path.dirname(self.target))


def lay_out(one: WantedFile | WantedFolder) -> LandingPlan:
    """Return the files to fetch and where; create the folders that they need."""
    os.makedirs(os.path.dirname(one.local) or ".", exist_ok=True)
    if isinstance(one, WantedFile):
        paths.check_digest(one.sha256, one.size)
        return LandingPlan([one])
    paths.check_names(one.files)
    for digest in one.files.values():
        paths.check_digest(digest.sha256, digest.size)
    if os.path.lexists(one.local):
        _check_folder(one.local)
        return LandingPlan(_files(one, one.local))
    # The same list gets the same name, so that another attempt finds what has arrived.
    listed = text.dump(sorted((name, digest.sha256) for name, digest in one.files.items()))
    made = durable.aside(one.local, listed)
    os.makedirs(made, exist_ok=True)
    _check_folder(made)
    # What has its own name there was checked before it got it.
    files = [file for file in _files(one, made) if not os.path.lexists(file.local)]
    return LandingPlan(files, made, one.local)


def _files(folder: WantedFolder, top: str) -> list[WantedFile]:
    return [
        WantedFile(
            remote=os.path.join(folder.remote, name),
            local=paths.inside(top, name),
            size=digest.size,
            sha256=digest.sha256,
        )
        for name, digest in folder.files.items()
    ]


def _check_folder(path: str) -> None:
    if not os.path.isdir(path):
        raise errors.Conflict(f"{text.show(path)} is not a folder, but a folder must be put there")


def _merge(made: str, target: str) -> None:
    """Move files one by one into a folder that was created meanwhile."""
    _check_folder(target)
    for folder, _, files in os.walk(made):
        for file in files:
            path = os.path.join(folder, file)
            os.rename(path, paths.inside(target, os.path.relpath(path, made)))
    for folder, _, _ in os.walk(made, topdown=False):
        os.rmdir(folder)
