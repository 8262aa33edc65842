"""Walk directories: watch each, list it, compare it with the store, and report the differences."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from pilotage.base.text import show
from pilotage.event.file.bits import CAME, CHANGED, CLOSED, DELETED, EXISTED, LEFT, MADE
from pilotage.event.file.complete import CompletenessGate
from pilotage.event.file.model import (
    NAMED,
    PASSED,
    TAKEN,
    Entry,
    KnownFiles,
    WatchScope,
    join,
    split,
)
from pilotage.event.file.outbox import Outbox
from pilotage.event.file.scan import DirectoryListing, Pairs, diff, read
from pilotage.event.file.tree import Role
from pilotage.event.file.watches import Watches
from pilotage.event.model import EventKind

#: So many new files are held back to see whether they are known files that were moved.
HELD = 100_000


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """A directory that is to be looked at."""

    #: Its path.
    path: str
    #: What is known of it.
    row: Entry | None = None
    #: How it came here if it is not known: `MADE`, `CAME` or `EXISTED`.
    how: int = EXISTED
    #: Where it was before it came.
    origin: str = ""
    #: Whether what is in it is compared with what is known, or is all new.
    compare: bool = True
    #: Whether it is a root: then its path may lead over links.
    top: bool = False
    #: Whether it is watched; polled directories are not.
    watch: bool = True
    #: Whether only elapsed time shows that a file in it is complete.
    still: bool = False


class Survey:
    """Finds out what is there."""

    def __init__(
        self,
        known: KnownFiles,
        outbox: Outbox,
        gate: CompletenessGate,
        watches: Watches,
        skip: frozenset[str],
        warn: Callable[[str], None],
    ) -> None:
        """Begin with nothing seen; `scope` is to be set before the first scan."""
        self.scope: WatchScope
        self._known = known
        self._outbox = outbox
        self._gate = gate
        self._watches = watches
        self._skip = skip
        self._warn = warn
        self._pairing = False
        self._pairs = Pairs()
        self._new: list[tuple[int, str, str, Entry, str, bool]] = []
        self._new_dirs: list[tuple[int, str, str, Entry, str]] = []
        self._lost_trees: list[str] = []

    def scan(self, visits: list[Visit], after_each: Callable[[], None] = lambda: None) -> None:
        """Scan directories and all below them; all earlier batches must be committed."""
        self._pairing = any(
            visit.compare and (visit.row is not None or self._known.below(visit.path))
            for visit in visits
        )
        stack = visits[::-1]
        while stack:
            stack.extend(self._visit(stack.pop()))
            if len(self._new) > HELD:
                self._release()
            after_each()
        self._release()
        for directory, name, is_dir in self._pairs.rest():
            self._outbox.lost(DELETED, directory, name, is_dir=is_dir, stale=True)
        for path in self._lost_trees:
            self._outbox.tree_gone(path)
        self._pairs = Pairs()
        self._lost_trees.clear()

    def enters(self, path: str) -> bool:
        """Return whether a directory is to be scanned."""
        return path not in self._skip and self.scope.descend(path)

    def name(self, path: str, how: int, row: Entry | None = None) -> None:
        """Take note of a directory that is not entered."""
        directory, name = split(path)
        edge = EventKind.DIR_MODIFIED in self._outbox.kinds and self.scope.inside(directory)
        if row is not None and not edge:
            return
        if edge and path not in self._skip:
            self._watches.set(path, Role.EDGE, follow=False)
        try:
            now = os.lstat(path)
        except OSError:
            return
        entry = Entry(True, now.st_ino, NAMED, now.st_mtime_ns if edge else 0)
        if row is None:
            self._outbox.directory(how, directory, name, entry)
        elif entry != row:
            changed = CHANGED if row.mtime_ns else 0
            self._outbox.directory(changed, directory, name, entry)

    def leave(self, path: str, to: str) -> None:
        """Report that all known entries below a directory were moved or deleted."""
        directory, name = split(path)
        self._outbox.lost(LEFT, directory, name, to, is_dir=True, stale=False)
        for place in self._known.below(path):
            for each, entry in self._known.listing(place).items():
                other = join(to + place[len(path) :], each) if to else ""
                self._gate.release(join(place, each))
                self._outbox.lost(LEFT, place, each, other, is_dir=entry.is_dir, stale=False)
        self._outbox.tree_gone(path)

    def _visit(self, visit: Visit) -> list[Visit]:
        role = Role.FULL if self.scope.inside(visit.path) else Role.WAY
        watched = visit.watch and self._watches.set(visit.path, role, follow=visit.top)
        try:
            found = read(visit.path, files=role is Role.FULL, follow=visit.top)
        except OSError as error:
            self._warn(f"{show(visit.path)} cannot be read: {error.strerror}")
            # What is known of it stays; it may be readable later, without a notification.
            if visit.watch:
                self._watches.poll(visit.path, still=visit.still)
            return []
        if found is None:
            self._absent(visit)
            return []
        still = visit.still
        if visit.watch and self._watches.must_poll(visit.path, found.device):
            self._watches.poll(visit.path, still=True)
            watched, still = False, True
        elif visit.watch and not watched:
            self._watches.poll(visit.path, still=still)
        rows = self._known.listing(visit.path) if visit.compare else {}
        if role is Role.FULL:
            self._files(visit, found, rows, still=still)
        inner = self._inner(visit, found, rows)
        self._own_row(visit, role, found)
        return [msgspec.structs.replace(each, watch=watched, still=still) for each in inner]

    def _files(
        self, visit: Visit, found: DirectoryListing, rows: dict[str, Entry], *, still: bool
    ) -> None:
        difference = diff(rows, found.files, found.unread)
        taken = visit.row is not None and visit.row.size == TAKEN
        bits = MADE | CLOSED if taken or visit.how == MADE else visit.how
        for name, entry in difference.new.items():
            other = join(visit.origin, name) if visit.origin else ""
            if self._pairing:
                self._new.append((bits, visit.path, name, entry, other, still))
            else:
                self._gate.admit(bits, visit.path, name, entry, other, still=still)
        for name, entry in difference.changed.items():
            self._gate.admit(CHANGED | CLOSED, visit.path, name, entry, "", still=still)
        for name, entry in difference.missing.items():
            self._gate.release(join(visit.path, name))
            self._pairs.gone(visit.path, name, entry)
        for name in found.dangling:
            self._gate.expect(bits, visit.path, name, None)

    def _inner(self, visit: Visit, found: DirectoryListing, rows: dict[str, Entry]) -> list[Visit]:
        inner = []
        passed = visit.row is not None and visit.row.size >= PASSED
        for name, inode in found.dirs.items():
            path = join(visit.path, name)
            if path in self._skip:
                continue
            row = rows.get(name)
            if row is not None and not (row.is_dir and row.inode == inode):
                row = None
            how = MADE if passed else visit.how
            if row is not None:
                how = EXISTED
            if not self.scope.descend(path):
                self.name(path, how, row)
                continue
            if row is None and how == EXISTED:
                # After a crash before its own scan it must not look as if made in between.
                self._outbox.row(visit.path, name, Entry(True, inode, NAMED, 0))
            origin = join(visit.origin, name) if visit.origin else ""
            inner.append(Visit(path=path, row=row, how=how, origin=origin, compare=visit.compare))
        for name, row in rows.items():
            if row.is_dir and name not in found.dirs:
                self._tree_lost(visit.path, name, row)
        return inner

    def _own_row(self, visit: Visit, role: Role, found: DirectoryListing) -> None:
        """Write the row of a directory: with its entries or after them, never before."""
        row = visit.row
        mtime_ns = found.mtime_ns if EventKind.DIR_MODIFIED in self._outbox.kinds else 0
        entry = Entry(True, found.inode, int(role), mtime_ns)
        if entry == row:
            return
        bits = visit.how if row is None or row.size == NAMED else 0
        if row is not None and row.mtime_ns and row.mtime_ns != mtime_ns:
            bits |= CHANGED
        directory, name = split(visit.path)
        if self._pairing:
            self._new_dirs.append((bits, directory, name, entry, visit.origin))
        else:
            self._outbox.directory(bits, directory, name, entry, visit.origin)

    def _absent(self, visit: Visit) -> None:
        self._watches.drop(visit.path)
        if visit.compare:
            self._tree_lost(*split(visit.path), visit.row)

    def _tree_lost(self, directory: str, name: str, row: Entry | None) -> None:
        path = join(directory, name)
        self._watches.drop(path)
        if row is not None:
            self._pairs.gone(directory, name, row)
        self._lost_trees.append(path)
        for place in self._known.below(path):
            for each, entry in self._known.listing(place).items():
                self._gate.release(join(place, each))
                self._pairs.gone(place, each, entry)

    def _release(self) -> None:
        """Report what was held back: new entries, and entries that were only moved."""
        for bits, directory, name, entry, other, still in self._new:
            before = self._pairs.came(entry)
            if before is None:
                self._gate.admit(bits, directory, name, entry, other, still=still)
                continue
            self._outbox.lost(LEFT, *before, join(directory, name), is_dir=False, stale=True)
            if still:
                # The version was complete when it had its other name.
                self._outbox.file(CAME, directory, name, entry, join(*before), whole=True)
            else:
                self._gate.admit(CAME, directory, name, entry, join(*before), still=False)
        for bits, directory, name, entry, origin in self._new_dirs:
            before = self._pairs.came(entry) if bits & (MADE | EXISTED) else None
            if before is None:
                self._outbox.directory(bits, directory, name, entry, origin)
            else:
                path, other = join(directory, name), join(*before)
                self._outbox.lost(LEFT, *before, path, is_dir=True, stale=True)
                self._outbox.directory(CAME, directory, name, entry, other)
        self._new.clear()
        self._new_dirs.clear()
