"""Directory listings, and their differences from the store."""

from __future__ import annotations

import errno
import os

import msgspec

from pilotage.event.file.model import Entry

_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


class DirectoryListing(msgspec.Struct, frozen=True):
    """The entries of a directory."""

    #: Its inode number.
    inode: int
    #: The device that it is on.
    device: int
    #: When its entries changed last.
    mtime_ns: int
    #: Regular files, and links to such, by name.
    files: dict[str, Entry]
    #: Inode numbers of the directories in it by name; links to directories do not count.
    dirs: dict[str, int]
    #: Links that point to nothing.
    dangling: list[str]
    #: Names of which nothing could be learnt now; what was known of them stays.
    unread: set[str]


def read(path: str, *, files: bool, follow: bool) -> DirectoryListing | None:
    """List a directory, `None` if it is not there; `follow` a link instead of refusing it.

    :raises OSError: it is there but cannot be read.
    """
    mode = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        handle = os.open(path, mode)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise
    try:
        own = os.fstat(handle)
        found = DirectoryListing(own.st_ino, own.st_dev, own.st_mtime_ns, {}, {}, [], set())
        with os.scandir(handle) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    found.dirs[entry.name] = entry.inode()
                elif files:
                    _add_file(entry, found)
    finally:
        os.close(handle)
    return found


def _add_file(entry: os.DirEntry[str], found: DirectoryListing) -> None:
    try:
        now = entry.stat()
    except OSError as error:
        if error.errno not in _ABSENT:
            found.unread.add(entry.name)
        elif entry.is_symlink():
            found.dangling.append(entry.name)
        return
    # Only regular files: neither pipes, sockets and devices nor links to directories.
    if now.st_mode & 0o170000 == 0o100000:
        found.files[entry.name] = Entry(False, now.st_ino, now.st_size, now.st_mtime_ns)


class Difference(msgspec.Struct, frozen=True):
    """The differences of a directory from the store."""

    #: Files that were not known.
    new: dict[str, Entry]
    #: Files that are not the version that was known.
    changed: dict[str, Entry]
    #: Files that are no more.
    missing: dict[str, Entry]


def diff(known: dict[str, Entry], found: dict[str, Entry], unread: set[str]) -> Difference:
    """Compare files by name; directories among `known` are left out."""
    if known == found:
        return Difference({}, {}, {})
    new: dict[str, Entry] = {}
    changed: dict[str, Entry] = {}
    for name, entry in found.items():
        old = known.get(name)
        if old is None or old.is_dir:
            new[name] = entry
        elif old != entry:
            changed[name] = entry
    missing = {
        name: entry
        for name, entry in known.items()
        if not entry.is_dir and name not in found and name not in unread
    }
    return Difference(new, changed, missing)


class Pairs:
    """Finds what went from one path to another among what is gone and what is new."""

    def __init__(self) -> None:
        """Start with none."""
        self._places: dict[Entry, list[tuple[str, str]]] = {}

    def gone(self, directory: str, name: str, entry: Entry) -> None:
        """Remember what is gone."""
        self._places.setdefault(_facts(entry), []).append((directory, name))

    def came(self, entry: Entry) -> tuple[str, str] | None:
        """Return where something new was before."""
        places = self._places.get(_facts(entry))
        return places.pop() if places else None

    def rest(self) -> list[tuple[str, str, bool]]:
        """Return what is gone for good, and whether it was a directory."""
        return [
            (directory, name, entry.is_dir)
            for entry, places in self._places.items()
            for directory, name in places
        ]


def _facts(entry: Entry) -> Entry:
    """Return what stays the same of a file or directory when it is moved."""
    return Entry(True, entry.inode, 0, 0) if entry.is_dir else entry
