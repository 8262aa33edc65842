"""Where files that come home are put: a new folder appears at once, whole."""

from __future__ import annotations

import errno
import os

import msgspec

from pilotage.base import durable, errors, paths, text
from pilotage.data.stage.model import Folder, Wanted


class Place(msgspec.Struct, frozen=True):
    """Files to bring, and a folder to rename when all of them are there."""

    files: list[Wanted]
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


def lay_out(one: Wanted | Folder) -> Place:
    """Say which files to bring and where; make the folders that they need."""
    os.makedirs(os.path.dirname(one.local) or ".", exist_ok=True)
    if isinstance(one, Wanted):
        paths.check_digest(one.sha256, one.size)
        return Place([one])
    paths.check_names(one.files)
    for digest in one.files.values():
        paths.check_digest(digest.sha256, digest.size)
    if os.path.lexists(one.local):
        _check_folder(one.local)
        return Place(_files(one, one.local))
    # The same list gets the same name, so that another attempt finds what has arrived.
    listed = text.dump(sorted((name, digest.sha256) for name, digest in one.files.items()))
    made = durable.aside(one.local, listed)
    os.makedirs(made, exist_ok=True)
    _check_folder(made)
    # What has its own name there was checked before it got it.
    files = [file for file in _files(one, made) if not os.path.lexists(file.local)]
    return Place(files, made, one.local)


def _files(folder: Folder, top: str) -> list[Wanted]:
    return [
        Wanted(
            remote=os.path.join(folder.remote, name),
            local=paths.inside(top, name),
            size=digest.size,
            sha256=digest.sha256,
        )
        for name, digest in folder.files.items()
    ]


def _check_folder(path: str) -> None:
    if not os.path.isdir(path):
        raise errors.Conflict(f"{text.show(path)} is no folder, but one is to be put there")


def _merge(made: str, target: str) -> None:
    """Put file by file into a folder that somebody else has made meanwhile."""
    _check_folder(target)
    for folder, _, files in os.walk(made):
        for file in files:
            path = os.path.join(folder, file)
            os.rename(path, paths.inside(target, os.path.relpath(path, made)))
    for folder, _, _ in os.walk(made, topdown=False):
        os.rmdir(folder)
