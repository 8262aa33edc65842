"""What can happen to a path as bits, and the kinds of events that they stand for.

The bits are those of inotify where it has one; the others are ours and never come from the kernel.
"""

from __future__ import annotations

from inotify_simple import flags

from pilotage.event.model import EventKind

MADE = int(flags.CREATE)
CHANGED = int(flags.MODIFY)
CLOSED = int(flags.CLOSE_WRITE)
CAME = int(flags.MOVED_TO)
LEFT = int(flags.MOVED_FROM)
DELETED = int(flags.DELETE)
TOUCHED = int(flags.ATTRIB)
IS_DIR = int(flags.ISDIR)
#: It was there before the first scan.
EXISTED = 1 << 16
#: The name was not taken before the first thing that happened to it.
FRESH = 1 << 17
#: It was closed under the name that it came from.
WHOLE = 1 << 18

#: What is said of complete files only.
COMPLETE = CLOSED | CAME | EXISTED

#: Bits that mean that the entries of a directory changed.
ENTRIES = MADE | CAME | LEFT | DELETED
#: What every watch asks for; a directory that is opened through a link is not the one meant.
_WATCH = ENTRIES | int(flags.ONLYDIR | flags.EXCL_UNLINK)

_FILE = {
    LEFT: EventKind.FILE_MOVED_FROM,
    DELETED: EventKind.FILE_DELETED,
    MADE: EventKind.FILE_CREATED,
    CHANGED: EventKind.FILE_MODIFIED,
    CLOSED: EventKind.FILE_CLOSED,
    CAME: EventKind.FILE_MOVED,
    EXISTED: EventKind.FILE_EXISTING,
}
_DIR = {
    LEFT: EventKind.DIR_MOVED_FROM,
    DELETED: EventKind.DIR_DELETED,
    MADE: EventKind.DIR_CREATED,
    CHANGED: EventKind.DIR_MODIFIED,
    CAME: EventKind.DIR_MOVED,
    EXISTED: EventKind.DIR_EXISTING,
}
#: What is said of files that are there.
TOLD = MADE | CHANGED | COMPLETE


def kinds_of(
    bits: dict[int, EventKind], wanted: frozenset[EventKind]
) -> dict[int, tuple[EventKind, ...]]:
    """Return the wanted kinds for every combination of bits."""
    table: dict[int, tuple[EventKind, ...]] = {0: ()}
    for bit, kind in bits.items():
        more = (kind,) if kind in wanted else ()
        table |= {known | bit: kinds + more for known, kinds in table.items()}
    return table


def file_kinds(wanted: frozenset[EventKind]) -> dict[int, tuple[EventKind, ...]]:
    """Return the wanted kinds of events on files for every combination of bits."""
    return kinds_of(_FILE, wanted)


def dir_kinds(wanted: frozenset[EventKind]) -> dict[int, tuple[EventKind, ...]]:
    """Return the wanted kinds of events on directories for every combination of bits."""
    return kinds_of(_DIR, wanted)


def file_mask(wanted: frozenset[EventKind]) -> int:
    """Return what to ask the kernel for in a directory whose files may match."""
    return _WATCH | CLOSED | TOUCHED | (CHANGED if EventKind.FILE_MODIFIED in wanted else 0)


def way_mask() -> int:
    """Return what to ask the kernel for in a directory that only leads to others."""
    return _WATCH
