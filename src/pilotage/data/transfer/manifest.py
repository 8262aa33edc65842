"""Lists of files of any length: kept on disk once they are long."""

from __future__ import annotations

import hashlib
import tempfile
import weakref
from collections.abc import Iterator
from typing import IO

import msgspec

from pilotage.base import errors, paths, text
from pilotage.data.transfer.model import UNKNOWN, TransferItem
from pilotage.data.transfer.url import Url

#: A list that is longer goes to the disk.
_IN_MEMORY = 1 << 20
_LONGEST_LINE = 1 << 16
_VERSION = 1


class Manifest:
    """The files of one address, with their number and bytes."""

    def __init__(self, base: Url, *, folder: bool) -> None:
        self.base = base
        self.folder = folder
        self.files = 0
        self.bytes = 0
        self._sum = hashlib.sha256()
        self._spool: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - see below
        # It has no name and is deleted with the list.
        weakref.finalize(self, self._spool.close)

    def add(self, item: TransferItem) -> None:
        """Take one file in; raise `Denied` for a name or a digest that cannot be."""
        paths.check_name(item.name, who=str(self.base))
        if (item.sha256 and not paths.DIGEST.fullmatch(item.sha256)) or item.size < UNKNOWN:
            raise errors.Denied(f"{self.base} has an invalid entry for {text.show(item.name)}")
        line = text.dump(item).encode() + b"\n"
        self._sum.update(line)
        self._spool.write(line)
        self.files += 1
        self.bytes += max(0, item.size)

    def __iter__(self) -> Iterator[TransferItem]:
        """Go through the files; one at a time may."""
        self._spool.seek(0)
        for line in self._spool:
            yield _item(line)
        self._spool.seek(0, 2)

    @property
    def digest(self) -> str:
        """The hash of the list."""
        return self._sum.hexdigest()

    def write(self, file: IO[bytes]) -> None:
        """Write it as others read it: first how much there is, then a line for each file."""
        head = {"version": _VERSION, "files": self.files, "bytes": self.bytes}
        file.write(msgspec.json.encode(head) + b"\n")
        for item in self:
            file.write(text.dump(item).encode() + b"\n")


class _Head(msgspec.Struct, frozen=True):
    version: int
    files: int
    bytes: int


text.prime(_Head, TransferItem)


def read(base: Url, file: IO[bytes]) -> Manifest:
    """Read an untrusted manifest; raise `Damaged` if its end is missing."""
    found = Manifest(base, folder=True)
    try:
        head = msgspec.json.decode(file.readline(_LONGEST_LINE), type=_Head)
        while line := file.readline(_LONGEST_LINE):
            found.add(_item(line))
    except (ValueError, msgspec.DecodeError) as error:
        raise errors.Damaged(f"the manifest of {base} is not understood: {error}") from error
    if head.version != _VERSION:
        raise errors.Denied(f"the manifest of {base} is of version {head.version}")
    if (head.files, head.bytes) != (found.files, found.bytes):
        raise errors.Damaged(f"the manifest of {base} is not whole")
    return found


def _item(line: bytes) -> TransferItem:
    return msgspec.convert(text.load(line), TransferItem)
