"""Events and their rows, gathered into batches."""

from __future__ import annotations

import os

from pilotage.base.clock import Clock
from pilotage.event.file.bits import CHANGED, COMPLETE, DELETED, LEFT, MADE, dir_kinds, file_kinds
from pilotage.event.file.model import UNFINISHED, Entry, FileBatch, Gone, Seen, Sink, join
from pilotage.event.model import Event, EventKind

#: A batch is flushed when it has this many rows.
FULL = 5_000

#: What was said of a path that a scan found gone.
_GONE = ("", LEFT | DELETED)


class Outbox:
    """Turns what happened into events and rows, says nothing twice, and puts them in batches.

    A scan and the kernel's queue overlap: what a scan found may have left events in the queue that
    are read later. So what was said is remembered until the queue is known to be past it.
    """

    def __init__(self, sink: Sink, clock: Clock, kinds: frozenset[EventKind]) -> None:
        self._sink = sink
        self._clock = clock
        self._now = clock.now()
        self._unflushed = False
        self._said: dict[str, tuple[str, int]] = {}
        self._said_before: dict[str, tuple[str, int]] = {}
        self._events: list[Event] = []
        self._seen: list[Seen] = []
        self._gone: list[Gone] = []
        self._tree_gone: list[str] = []
        self.reshape(kinds)

    def reshape(self, kinds: frozenset[EventKind]) -> None:
        """Speak of these kinds of events only, from now on."""
        self.kinds = kinds
        self._file_kinds = file_kinds(kinds)
        self._dir_kinds = dir_kinds(kinds)

    def file(
        self, bits: int, directory: str, name: str, entry: Entry, other: str = "", *, whole: bool
    ) -> None:
        """Report what happened to a file that exists, and write its row."""
        path = f"{directory}/{name}" if directory != "/" else f"/{name}"
        inode, size, mtime_ns = entry.inode, entry.size, entry.mtime_ns
        version = f"{inode}-{size}-{mtime_ns}"
        said = self._said.get(path) or self._said_before.get(path)
        if said is not None:
            told = said[1]
            # A file is made once; it may be complete again in another version.
            told &= (MADE | COMPLETE) if said[0] == version else MADE
            bits &= ~told
            self._said[path] = (version, (bits | told) & (MADE | COMPLETE))
        else:
            self._said[path] = (version, bits & (MADE | COMPLETE))
        for kind in self._file_kinds[bits]:
            self._events.append(Event(kind, path, self._now, version, size, mtime_ns / 1e9, other))
        self._seen.append((directory, name, False, inode, size, mtime_ns if whole else UNFINISHED))
        if len(self._seen) >= FULL:
            self.send()

    def directory(
        self, bits: int, directory: str, name: str, entry: Entry, other: str = ""
    ) -> None:
        """Report what happened to a directory that exists, and write its row."""
        path = join(directory, name)
        inode = str(entry.inode)
        told = self._told(path)
        if told is not None and told[0] == inode:
            bits &= CHANGED
        elif bits & ~CHANGED:
            self._said[path] = (inode, bits)
        version = f"{inode}-{entry.size}-{entry.mtime_ns}"
        for kind in self._dir_kinds[bits]:
            self._events.append(Event(kind, path, self._now, version, other=other))
        self.row(directory, name, entry)

    def row(self, directory: str, name: str, entry: Entry) -> None:
        """Write a row with nothing to say."""
        self._seen.append((directory, name, entry.is_dir, entry.inode, entry.size, entry.mtime_ns))

    def lost(
        self, bits: int, directory: str, name: str, other: str = "", *, is_dir: bool, stale: bool
    ) -> None:
        """Report that something left a path; `stale` if the kernel may still report it."""
        path = join(directory, name)
        if not self._retract(path, stale=stale):
            return
        kinds = self._dir_kinds if is_dir else self._file_kinds
        # No version of a file is left: each time is an occurrence of its own.
        version = f"{self._now:.6f}"
        for kind in kinds[bits]:
            self._events.append(Event(kind, path, self._now, version, other=other))
        # Something else may be there by now, with a row of its own.
        if not os.path.lexists(path):
            self._gone.append((directory, name))
        if len(self._events) >= FULL:
            self.send()

    def gone(self, directory: str, name: str) -> None:
        """Delete a row with nothing to say."""
        self._gone.append((directory, name))

    def tree_gone(self, path: str) -> None:
        """Delete the rows of all that was below a directory."""
        self._tree_gone.append(path)

    def wants(self, bits: int) -> bool:
        """Return whether anything would be reported of a file."""
        return bool(self._file_kinds[bits])

    def said(self, path: str) -> bool:
        """Return whether something was reported lately of a path that existed."""
        told = self._told(path)
        return told is not None and told != _GONE

    def complete(self, path: str, entry: Entry) -> bool:
        """Return whether this version of a file was reported complete lately."""
        told = self._told(path)
        version = f"{entry.inode}-{entry.size}-{entry.mtime_ns}"
        return told is not None and told[0] == version and bool(told[1] & COMPLETE)

    def send(self) -> None:
        """Flush all events as one batch."""
        if self._seen or self._gone or self._events or self._tree_gone:
            batch = FileBatch(self._events, self._seen, self._gone, self._tree_gone)
            self._events, self._seen, self._gone, self._tree_gone = [], [], [], []
            self._unflushed = True
            self._sink.put(batch)
        self._now = self._clock.now()

    def begin(self) -> None:
        """Take the time for what is said next."""
        self._now = self._clock.now()

    def flush(self) -> None:
        """Return when all that was said is committed."""
        self.send()
        if self._unflushed:
            self._sink.flush()
            self._unflushed = False

    def turn(self) -> None:
        """Clear what was reported before the last turn: the queue is past it."""
        self._said_before = self._said
        self._said = {}

    def forget(self) -> None:
        """Clear what was reported: the queue is empty."""
        self._said.clear()
        self._said_before.clear()

    def remembered(self) -> int:
        """Return of how many paths it is known what was said."""
        return len(self._said)

    def _told(self, path: str) -> tuple[str, int] | None:
        return self._said.get(path) or self._said_before.get(path)

    def _retract(self, path: str, *, stale: bool) -> bool:
        """Remember that a path is gone; tell whether that is news."""
        if self._told(path) == _GONE:
            return False
        self._said_before.pop(path, None)
        if stale:
            self._said[path] = _GONE
        else:
            self._said.pop(path, None)
        return True
