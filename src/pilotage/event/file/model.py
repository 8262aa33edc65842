"""The nouns of the file source: what is known of a path, what is handed on, and to whom."""

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
    """What is known of one name in a directory."""

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
    """What is committed as one: first `tree_gone`, then `gone`, then `seen`, with the events."""

    #: What happened.
    events: list[Event]
    #: Rows to write.
    seen: list[Seen]
    #: Rows to delete.
    gone: list[Gone]
    #: Directories: the rows of all that was below each are to be deleted, its own row is in `gone`.
    tree_gone: list[str]


class WatchScope(Protocol):
    """Where the rules look."""

    @property
    def roots(self) -> tuple[str, ...]:
        """Absolute directories below which all that can match is."""
        ...

    def descend(self, directory: str) -> bool:
        """Tell whether anything at or below a directory, or on the way to a root, may match."""
        ...

    def inside(self, directory: str) -> bool:
        """Tell whether entries directly in a directory may match."""
        ...


class KnownFiles(Protocol):
    """What was committed so far."""

    def listing(self, directory: str) -> dict[str, Entry]:
        """Return the rows of the entries of a directory by name."""
        ...

    def below(self, directory: str) -> list[str]:
        """Return the directories at or below one that have rows for entries."""
        ...


class Sink(Protocol):
    """Where batches go."""

    def put(self, batch: FileBatch) -> None:
        """Take a batch, to be committed as one; block while there are too many."""
        ...

    def flush(self) -> None:
        """Return when all batches put so far are committed."""
        ...


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How the file system is watched."""

    #: Ask the kernel, look again and again, or what suits each file system.
    mode: Literal["auto", "inotify", "poll"] = "auto"
    #: Seconds between two looks where the kernel does not tell.
    poll_interval: float = 1.0
    #: A file is complete when unchanged for so many seconds, where nothing better tells.
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
    """Tell whether a path is a directory or below it."""
    return path == top or path.startswith(top if top == "/" else top + "/")
