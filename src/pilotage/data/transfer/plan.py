"""Decisions about which files must move (pure functions)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from pilotage.base import errors, text, units
from pilotage.data.transfer.model import UNKNOWN, TransferItem

#: The most files of one batch, and the most bytes of several.
BATCH_FILES = 1000
BATCH_BYTES = 256 << 20

#: Some systems keep times to the second, some to two.
_COARSE_NS = 2_000_000_000
#: Where both tell parts of a second, this is as far apart as roundings bring them.
_FINE_NS = 1_000_000
_SECOND_NS = 1_000_000_000
#: A disk is not to be filled to its last byte or inode.
_MARGIN_BYTES = 1 << 20
_MARGIN_FILES = 16


class FileAction(StrEnum):
    """The action for one file."""

    #: It is not there.
    MOVE = "move"
    #: It is there already.
    HAVE = "have"
    #: What is there may be it: only its digest can tell.
    COMPARE = "compare"
    #: Something else is there.
    CONFLICT = "conflict"


class ExistingFile(msgspec.Struct, frozen=True):
    """The file of that name at the destination."""

    size: int
    #: In nanoseconds; 0 if the destination does not keep times.
    mtime: int = 0
    sha256: str = ""
    regular: bool = True


def step(item: TransferItem, there: ExistingFile | None) -> FileAction:
    """Compare a file with what has its name at the destination."""
    if there is None:
        return FileAction.MOVE
    if not there.regular:
        return FileAction.CONFLICT
    if item.sha256 and there.sha256:
        return FileAction.HAVE if item.sha256 == there.sha256 else FileAction.CONFLICT
    if item.size not in (UNKNOWN, there.size):
        return FileAction.CONFLICT
    if item.sha256:
        return FileAction.COMPARE
    if item.size == UNKNOWN or not item.mtime or not there.mtime:
        # There is no evidence that they differ, nor that they are equal.
        return FileAction.MOVE
    fine = item.mtime % _SECOND_NS and there.mtime % _SECOND_NS
    same = abs(item.mtime - there.mtime) < (_FINE_NS if fine else _COARSE_NS)
    return FileAction.HAVE if same else FileAction.CONFLICT


def batches(items: Iterable[TransferItem]) -> Iterator[list[TransferItem]]:
    """Group files: many small ones go together, a large one alone."""
    batch: list[TransferItem] = []
    weight = 0
    for item in items:
        if batch and (len(batch) >= BATCH_FILES or weight + item.size > BATCH_BYTES):
            yield batch
            batch, weight = [], 0
        batch.append(item)
        weight += max(0, item.size)
    if batch:
        yield batch


class FreeSpace(msgspec.Struct, frozen=True):
    """The free space of a file system."""

    bytes: int
    #: Nothing if it does not count them.
    files: int | None = None


def check_room(where: str, room: FreeSpace, *, files: int, size: int, spare: int = 0) -> None:
    """Raise `Unavailable` if files do not fit, or if less than `spare` would stay free."""
    place = text.show(where)
    if size + spare + _MARGIN_BYTES > room.bytes:
        need, left = units.bytes_for_people(size), units.bytes_for_people(room.bytes)
        more = f", and {units.bytes_for_people(spare)} are to stay free" if spare else ""
        message = f"{place} has {left} left, and {need} are needed{more}"
        raise errors.Unavailable(message, hint="free space")
    if room.files is not None and files + _MARGIN_FILES > room.files:
        raise errors.Unavailable(
            f"{place} has room for {room.files} more files, and {files} are needed",
            hint="remove files: the file system has no inodes left",
        )
