"""What can happen to a path as bits, and the kinds of events that they stand for.

The bits are those of inotify where it has one; the others are ours and never come from the kernel.
"""

from __future__ import annotations

from inotify_simple import flags

from pilotage.event.model import Kind

MADE = int(flags.CREATE)
CHANGED = int(flags.MODIFY)
CLOSED = int(flags.CLOSE_WRITE)
CAME = int(flags.MOVED_TO)
LEFT = int(flags.MOVED_FROM)
DELETED = int(flags.DELETE)
TOUCHED = int(flags.ATTRIB)
IS_DIR = int(flags.ISDIR)
#: It was there before anybody looked.
EXISTED = 1 << 16
#: The name was not taken before the first thing that happened to it.
FRESH = 1 << 17
#: It was closed under the name that it came from.
WHOLE = 1 << 18

#: What is said of complete files only.
COMPLETE = CLOSED | CAME | EXISTED

#: What tells that the entries of a directory changed.
ENTRIES = MADE | CAME | LEFT | DELETED
#: What every watch asks for; a directory that is opened through a link is not the one meant.
_WATCH = ENTRIES | int(flags.ONLYDIR | flags.EXCL_UNLINK)

_FILE = {
    LEFT: Kind.FILE_MOVED_FROM,
    DELETED: Kind.FILE_DELETED,
    MADE: Kind.FILE_CREATED,
    CHANGED: Kind.FILE_MODIFIED,
    CLOSED: Kind.FILE_CLOSED,
    CAME: Kind.FILE_MOVED,
    EXISTED: Kind.FILE_EXISTING,
}
_DIR = {
    LEFT: Kind.DIR_MOVED_FROM,
    DELETED: Kind.DIR_DELETED,
    MADE: Kind.DIR_CREATED,
    CHANGED: Kind.DIR_MODIFIED,
    CAME: Kind.DIR_MOVED,
    EXISTED: Kind.DIR_EXISTING,
}
#: What is said of files that are there.
TOLD = MADE | CHANGED | COMPLETE


def kinds_of(bits: dict[int, Kind], wanted: frozenset[Kind]) -> dict[int, tuple[Kind, ...]]:
    """Return the wanted kinds for every combination of bits."""
    table: dict[int, tuple[Kind, ...]] = {0: ()}
    for bit, kind in bits.items():
        more = (kind,) if kind in wanted else ()
        table |= {known | bit: kinds + more for known, kinds in table.items()}
    return table


def file_kinds(wanted: frozenset[Kind]) -> dict[int, tuple[Kind, ...]]:
    """Return the wanted kinds of events on files for every combination of bits."""
    return kinds_of(_FILE, wanted)


def dir_kinds(wanted: frozenset[Kind]) -> dict[int, tuple[Kind, ...]]:
    """Return the wanted kinds of events on directories for every combination of bits."""
    return kinds_of(_DIR, wanted)


def file_mask(wanted: frozenset[Kind]) -> int:
    """Return what to ask the kernel for in a directory whose files may match."""
    return _WATCH | CLOSED | TOUCHED | (CHANGED if Kind.FILE_MODIFIED in wanted else 0)


def way_mask() -> int:
    """Return what to ask the kernel for in a directory that only leads to others."""
    return _WATCH
