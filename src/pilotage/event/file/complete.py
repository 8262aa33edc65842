"""Detect that a file is complete: no process has it open for writing, or it stopped changing."""

from __future__ import annotations

import errno
import fcntl
import heapq
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from pilotage.event.file.model import Entry, join
from pilotage.event.file.outbox import Outbox

#: A file that was made and not closed is checked after this many seconds, since links have no
#: close; most files are closed by then.
FIRST_LOOK = 0.02
#: Longest wait between two checks of a file that is open for writing, in seconds.
LAST_LOOK = 5.0

_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_TYPE, _REGULAR = 0o170000, 0o100000


class FileState(Enum):
    """The state of a file."""

    #: No process has it open for writing.
    WHOLE = auto()
    #: A process has it open for writing.
    OPEN = auto()
    #: Unknown: the kernel grants no leases here.
    UNSURE = auto()
    #: It is not there.
    GONE = auto()


def examine(path: str) -> tuple[FileState, Entry | None]:
    """Return the state of a file by a read lease, granted if it is not open for writing."""
    try:
        handle = os.open(path, _OPEN)
    except OSError as error:
        absent = error.errno in {errno.ENOENT, errno.ENOTDIR}
        return (FileState.GONE if absent else FileState.UNSURE), None
    try:
        # Who opens it for writing meanwhile makes the kernel send a signal. By default that is
        # SIGIO, which kills; SIGURG is ignored unless it is handled.
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        return FileState.WHOLE, _regular(os.fstat(handle))
    except OSError as error:
        return (FileState.OPEN if error.errno == errno.EAGAIN else FileState.UNSURE), None
    finally:
        # This also gives the lease back.
        os.close(handle)


def _regular(now: os.stat_result) -> Entry | None:
    if now.st_mode & _TYPE != _REGULAR:
        return None
    return Entry(False, now.st_ino, now.st_size, now.st_mtime_ns)


def entry_of(path: str) -> Entry | None:
    """Return what a regular file, or the one that a link points to, is now."""
    try:
        now = os.stat(path)
    except OSError:
        return None
    return _regular(now)


def fresh_entry_of(path: str) -> Entry | None:
    """Return what a regular file is now, also where another host may have written it."""
    try:
        # Opening is what makes NFS ask its server instead of its cache.
        handle = os.open(path, _OPEN)
        try:
            now = os.fstat(handle)
        finally:
            os.close(handle)
    except OSError:
        return entry_of(path)
    return _regular(now)


class CompletenessCheck:
    """A file that is to be looked at again."""

    __slots__ = ("bits", "directory", "due", "entry", "name", "other", "since", "still", "wait")

    def __init__(self, directory: str, name: str, entry: Entry | None, *, still: bool) -> None:
        """Name the file; `still` if only elapsed time shows that it is complete."""
        self.directory = directory
        self.name = name
        self.entry = entry
        self.still = still
        #: What is to be said once it is complete.
        self.bits = 0
        self.other = ""
        self.since = self.due = time.monotonic()
        self.wait = FIRST_LOOK


@dataclass(eq=False)
class CompletenessGate:
    """Lets files through when they are complete."""

    _outbox: Outbox
    _settle: float
    #: Returns whether the inotify queue is empty.
    _idle: Callable[[], bool]
    _checks: dict[str, CompletenessCheck] = field(default_factory=dict, init=False)
    _heap: list[tuple[float, str]] = field(default_factory=list, init=False)

    def __contains__(self, path: str) -> bool:
        return path in self._checks

    def admit(
        self, bits: int, directory: str, name: str, entry: Entry, other: str, *, still: bool
    ) -> None:
        """Report a file if it is complete, or else once it is."""
        path = join(directory, name)
        if path in self._checks:
            check = self._checks[path]
            check.bits, check.other = check.bits | bits, other or check.other
            return
        state, now = (FileState.UNSURE, None) if still else examine(path)
        if state is FileState.WHOLE:
            # It may have grown between the look and the lease.
            entry = now or entry
            self._outbox.file(bits, directory, name, entry, other, whole=True)
        elif state is not FileState.GONE:
            check = CompletenessCheck(directory, name, entry, still=state is FileState.UNSURE)
            check.bits, check.other = bits, other
            self._await(path, check, self._settle if check.still else FIRST_LOOK)

    def expect(self, bits: int, directory: str, name: str, entry: Entry | None) -> None:
        """Check a file soon, unless it is closed before."""
        path = join(directory, name)
        if path in self._checks:
            self._checks[path].bits |= bits
            return
        check = CompletenessCheck(directory, name, entry, still=False)
        check.bits = bits
        self._await(path, check, FIRST_LOOK)

    def release(self, path: str) -> tuple[int, str]:
        """Stop waiting for a file; return what was to be said of it."""
        check = self._checks.pop(path, None)
        return (check.bits, check.other) if check is not None else (0, "")

    def due(self) -> float | None:
        """Return when the next file is to be looked at."""
        return self._heap[0][0] if self._heap else None

    def look(self) -> None:
        """Check all files that are due."""
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now:
            due, path = heapq.heappop(self._heap)
            check = self._checks.get(path)
            if check is not None and check.due == due:
                self._look_at(path, check, now)

    def _look_at(self, path: str, check: CompletenessCheck, now: float) -> None:
        entry = fresh_entry_of(path) if check.still else entry_of(path)
        if entry is None:
            self._missing(path, check)
            return
        if entry != check.entry:
            check.entry, check.since = entry, now
        if check.still:
            wait = check.since + self._settle - now
            if wait > 0:
                self._await(path, check, wait)
                return
        elif (leased := self._whole(path, check)) is None:
            return
        else:
            entry = leased
        if check.bits:
            del self._checks[path]
            where = (check.directory, check.name)
            self._outbox.file(check.bits, *where, entry, check.other, whole=True)
        elif self._idle():
            del self._checks[path]
            self._outbox.row(check.directory, check.name, entry)
        else:
            # A row alone would hide a close that is still in the queue.
            self._again(path, check)

    def _whole(self, path: str, check: CompletenessCheck) -> Entry | None:
        """Return what a file is if a lease is granted; if not, look again later."""
        state, entry = examine(path)
        if state is FileState.UNSURE:
            check.still, check.since = True, time.monotonic()
            self._await(path, check, self._settle)
        elif state is FileState.OPEN:
            self._again(path, check)
        elif entry is None:
            self._missing(path, check)
        return entry

    def _missing(self, path: str, check: CompletenessCheck) -> None:
        """Give up on a path with nothing; a link may point to something later."""
        if os.path.islink(path):
            self._again(path, check)
        else:
            del self._checks[path]

    def _again(self, path: str, check: CompletenessCheck) -> None:
        check.wait = min(check.wait * 2, LAST_LOOK)
        self._await(path, check, check.wait)

    def _await(self, path: str, check: CompletenessCheck, seconds: float) -> None:
        check.due = time.monotonic() + seconds
        self._checks[path] = check
        heapq.heappush(self._heap, (check.due, path))
