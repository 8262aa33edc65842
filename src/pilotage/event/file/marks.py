"""Kernel records, grouped into what happened to each name in each directory."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable

from inotify_simple import flags

from pilotage.event.file.bits import CAME, CLOSED, DELETED, FRESH, IS_DIR, LEFT, MADE, WHOLE
from pilotage.event.file.queue import HEADER

#: The second half of a move comes within this many seconds after the first, or not at all.
PAIRING = 0.05

_OVERFLOW = int(flags.Q_OVERFLOW)
_SPECIAL = LEFT | CAME | IS_DIR | _OVERFLOW | int(flags.IGNORED | flags.UNMOUNT | flags.MOVE_SELF)
_CODING = sys.getfilesystemencoding()


def decode(raw: bytes) -> str:
    """Return a file name as text; bytes that are no text become lone surrogates."""
    return raw.decode(_CODING, "surrogateescape")


class Departed:
    """A file that left its name; where it went is not known yet."""

    __slots__ = ("bits", "number", "raw", "since")

    def __init__(self, number: int, raw: bytes, bits: int) -> None:
        """Remember what had happened to it before."""
        self.number = number
        self.raw = raw
        self.bits = bits
        self.since = time.monotonic()


class Marks:
    """What happened to files since the last look, one set of bits a name.

    Whatever is not about a plain file goes to `special` in the order of the queue.
    """

    def __init__(self, special: Callable[[int, int, int, bytes], None]) -> None:
        self._special = special
        #: Bits by watch and name.
        self.names: defaultdict[int, dict[bytes, int]] = defaultdict(dict)
        #: Where moved files came from, as watch and name.
        self.origins: dict[tuple[int, bytes], tuple[int, bytes] | None] = {}
        #: Files that left: what they were, and watch and name of where they went.
        self.left: list[tuple[Departed, tuple[int, bytes] | None]] = []
        self._departed: dict[int, Departed] = {}
        #: Whether the kernel had to drop records.
        self.overflowed = False

    def gather(self, data: bytes, start: int = 0) -> int:
        """Take records up to an overflow or the end; return where it stopped."""
        unpack, size, names = HEADER.unpack_from, HEADER.size, self.names
        position: int = start
        end = len(data)
        while position < end:
            number, mask, cookie, length = unpack(data, position)
            position += size
            raw = data[position : position + length].rstrip(b"\0")
            position += length
            if mask & _SPECIAL:
                if mask & _OVERFLOW:
                    self.overflowed = True
                    return position
                self._other(number, mask, cookie, raw)
                continue
            marks = names[number]
            old = marks.get(raw)
            if old is None:
                marks[raw] = mask | FRESH if mask & MADE else mask
            elif mask & DELETED:
                # What happened before it was deleted says nothing of what may come after.
                marks[raw] = old & FRESH | mask
            else:
                marks[raw] = old | mask
        return position

    def expire(self) -> None:
        """Take it that files went away for which no arrival came in time."""
        before = time.monotonic() - PAIRING
        for cookie, departed in list(self._departed.items()):
            if departed.since > before:
                break
            del self._departed[cookie]
            self.left.append((departed, None))

    def due(self) -> float | None:
        """Return when something expires next."""
        for departed in self._departed.values():
            return departed.since + PAIRING
        return None

    def clear(self) -> None:
        """Start over; keep files whose arrival is awaited."""
        self.names.clear()
        self.origins.clear()
        self.left.clear()
        self.overflowed = False

    def _other(self, number: int, mask: int, cookie: int, raw: bytes) -> None:
        if mask & IS_DIR or not mask & (LEFT | CAME):
            self._special(number, mask, cookie, raw)
        elif mask & LEFT:
            bits = self.names[number].pop(raw, 0)
            self._departed[cookie] = Departed(number, raw, bits)
            self.origins.pop((number, raw), None)
        else:
            self._arrive(number, cookie, raw)

    def _arrive(self, number: int, cookie: int, raw: bytes) -> None:
        departed = self._departed.pop(cookie, None)
        marks = self.names[number]
        old = marks.get(raw)
        bits = CAME | (FRESH if old is None else old & FRESH)
        if departed is None:
            self.origins[number, raw] = None
        else:
            bits |= WHOLE if departed.bits & (CLOSED | WHOLE) else 0
            self.origins[number, raw] = (departed.number, departed.raw)
            self.left.append((departed, (number, raw)))
        marks[raw] = bits
