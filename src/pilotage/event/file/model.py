"""Data types and interfaces of the file source."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from pilotage.event.model import Event

#: Stands for the time of change of a file that may still be written: no real file has it, so the
#: next scan takes the file up again, whatever happens to us in between.
UNFINISHED = -1

#: The size in a directory's row says how much of it was taken: only its name, ...
NAMED = 0
#: ... also its sub-directories, ...
PASSED = 1
#: ... or all that is in it.
TAKEN = 2


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The stored facts of one name in a directory."""

    #: Whether it is a directory.
    is_dir: bool
    #: Inode number.
    inode: int
    #: Size in bytes; of a directory `NAMED`, `PASSED` or `TAKEN`.
    size: int
    #: Last change in nanoseconds, or `UNFINISHED`; of a directory 0 unless changes are asked for.
    mtime_ns: int


#: Directory, name, whether it is a directory, inode, size, time of change in nanoseconds.
Seen = tuple[str, str, bool, int, int, int]
#: Directory and name.
Gone = tuple[str, str]


class FileBatch(msgspec.Struct, frozen=True):
    """Changes committed as one: first `tree_gone`, then `gone`, then `seen`, with the events."""

    #: What happened.
    events: list[Event]
    #: Rows to write.
    seen: list[Seen]
    #: Rows to delete.
    gone: list[Gone]
    #: Directories: the rows of all that was below each are to be deleted, its own row is in `gone`.
    tree_gone: list[str]


class WatchScope(Protocol):
    """The directories that the rules watch."""

    @property
    def roots(self) -> tuple[str, ...]:
        """Absolute directories below which all that can match is."""
        ...

    def descend(self, directory: str) -> bool:
        """Return whether anything at or below a directory, or on the way to a root, may match."""
        ...

    def inside(self, directory: str) -> bool:
        """Return whether entries directly in a directory may match."""
        ...


class KnownFiles(Protocol):
    """The stored rows of files."""

    def listing(self, directory: str) -> dict[str, Entry]:
        """Return the rows of the entries of a directory by name."""
        ...

    def below(self, directory: str) -> list[str]:
        """Return the directories at or below one that have rows for entries."""
        ...


class Sink(Protocol):
    """The receiver of batches."""

    def put(self, batch: FileBatch) -> None:
        """Accept a batch, to be committed as one; block while there are too many."""
        ...

    def flush(self) -> None:
        """Return when all batches put so far are committed."""
        ...


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of file events."""

    #: Ask the kernel, look again and again, or what suits each file system.
    mode: Literal["auto", "inotify", "poll"] = "auto"
    #: Seconds between two scans where inotify does not work.
    poll_interval: float = 1.0
    #: A file is complete when unchanged for this many seconds, where leases do not work.
    settle: float = 0.5
    #: Absolute directories that are never entered.
    skip: frozenset[str] = frozenset()


def join(directory: str, name: str) -> str:
    """Return the path of an entry of a directory."""
    return f"{directory}/{name}" if directory != "/" else f"/{name}"


def split(path: str) -> tuple[str, str]:
    """Return directory and name of an absolute path; those of `/` are `/` and the empty name."""
    directory, _, name = path.rpartition("/")
    return directory or "/", name


def within(path: str, top: str) -> bool:
    """Return whether a path is a directory or below it."""
    return path == top or path.startswith(top if top == "/" else top + "/")
