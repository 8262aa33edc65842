"""Events and their kinds."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class EventKind(StrEnum):
    """What happened."""

    #: A file appeared; it may not be complete.
    FILE_CREATED = "file.created"
    #: The content of a file changed; it may not be complete.
    FILE_MODIFIED = "file.modified"
    #: A file was written and closed: it is complete.
    FILE_CLOSED = "file.closed"
    #: A file arrived under this name by a rename; the subject is the destination.
    FILE_MOVED = "file.moved"
    #: A file left this name by a rename; the subject is the source.
    FILE_MOVED_FROM = "file.moved_from"
    #: A file was deleted.
    FILE_DELETED = "file.deleted"
    #: A file was there already when the rule was added.
    FILE_EXISTING = "file.existing"
    #: A directory appeared.
    DIR_CREATED = "dir.created"
    #: The entries of a directory changed.
    DIR_MODIFIED = "dir.modified"
    #: A directory arrived under this name by a rename.
    DIR_MOVED = "dir.moved"
    #: A directory left this name by a rename.
    DIR_MOVED_FROM = "dir.moved_from"
    #: A directory was deleted.
    DIR_DELETED = "dir.deleted"
    #: A directory was there already when the rule was added.
    DIR_EXISTING = "dir.existing"
    #: A timer of a rule is due; the subject is the rule's name.
    TIMER = "timer"
    #: A message came by HTTP, TCP, the bus or `pilotage event emit`; the subject is its topic.
    MESSAGE = "message"
    #: A job ended; the subject is its name (that of its rule).
    JOB_ENDED = "job.ended"


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened."""

    #: What happened.
    kind: EventKind
    #: Absolute path, topic, timer or job name: what it happened to.
    subject: str
    #: When, in seconds since 1970 UTC.
    time: float
    #: Which version of the file or occurrence this is; the same version never fires a rule twice.
    version: str = ""
    #: Size of the file in bytes.
    size: int = 0
    #: Last change of the file, in seconds since 1970 UTC.
    mtime: float = 0.0
    #: The other end of a move.
    other: str = ""
    #: Fields of a message or facts of an ended job.
    data: dict[str, Any] = {}
    #: The job known to have caused it.
    cause: int | None = None


class FileVersion(msgspec.Struct, frozen=True):
    """A version of a file: inode, size and time of change."""

    #: Inode number.
    inode: int
    #: Size in bytes.
    size: int
    #: Last change of the content, in nanoseconds.
    mtime_ns: int

    def __str__(self) -> str:
        """Write it in the form that events carry."""
        return f"{self.inode}-{self.size}-{self.mtime_ns}"
