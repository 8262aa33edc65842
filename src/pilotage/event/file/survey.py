"""Walk directories: watch each, list it, compare it with the store, and report the differences."""

from __future__ import annotations

import errno
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
from pilotage.event.file.watches import Role, Watches
from pilotage.event.model import EventKind

_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


class DirectoryListing(msgspec.Struct, frozen=True):
    """The entries of a directory."""

    #: Its inode number.
    inode: int
    #: The device that it is on.
    device: int
    #: When its entries changed last.
    mtime_ns: int
    #: Regular files, and links to such, by name.
    files: dict[str, Entry]
    #: Inode numbers of the directories in it by name; links to directories do not count.
    dirs: dict[str, int]
    #: Links that point to nothing.
    dangling: list[str]
    #: Names of which nothing could be learnt now; what was known of them stays.
    unread: set[str]


def read(path: str, *, files: bool, follow: bool) -> DirectoryListing | None:
    """List a directory, `None` if it is not there; `follow` a link instead of refusing it.

    :raises OSError: it is there but cannot be read.
    """
    mode = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        handle = os.open(path, mode)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise
    try:
        own = os.fstat(handle)
        found = DirectoryListing(own.st_ino, own.st_dev, own.st_mtime_ns, {}, {}, [], set())
        with os.scandir(handle) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    found.dirs[entry.name] = entry.inode()
                elif files:
                    _add_file(entry, found)
    finally:
        os.close(handle)
    return found


def _add_file(entry: os.DirEntry[str], found: DirectoryListing) -> None:
    try:
        now = entry.stat()
    except OSError as error:
        if error.errno not in _ABSENT:
            found.unread.add(entry.name)
        elif entry.is_symlink():
            found.dangling.append(entry.name)
        return
    # Only regular files: neither pipes, sockets and devices nor links to directories.
    if now.st_mode & 0o170000 == 0o100000:
        found.files[entry.name] = Entry(False, now.st_ino, now.st_size, now.st_mtime_ns)


class Difference(msgspec.Struct, frozen=True):
    """The differences of a directory from the store."""

    #: Files that were not known.
    new: dict[str, Entry]
    #: Files that are not the version that was known.
    changed: dict[str, Entry]
    #: Files that are no more.
    missing: dict[str, Entry]


def diff(known: dict[str, Entry], found: dict[str, Entry], unread: set[str]) -> Difference:
    """Compare files by name; directories among `known` are left out."""
    if known == found:
        return Difference({}, {}, {})
    new: dict[str, Entry] = {}
    changed: dict[str, Entry] = {}
    for name, entry in found.items():
        old = known.get(name)
        if old is None or old.is_dir:
            new[name] = entry
        elif old != entry:
            changed[name] = entry
    missing = {
        name: entry
        for name, entry in known.items()
        if not entry.is_dir and name not in found and name not in unread
    }
    return Difference(new, changed, missing)


class Pairs:
    """Finds what went from one path to another among what is gone and what is new."""

    def __init__(self) -> None:
        """Start with none."""
        self._places: dict[Entry, list[tuple[str, str]]] = {}

    def gone(self, directory: str, name: str, entry: Entry) -> None:
        """Remember what is gone."""
        self._places.setdefault(_facts(entry), []).append((directory, name))

    def came(self, entry: Entry) -> tuple[str, str] | None:
        """Return where something new was before."""
        places = self._places.get(_facts(entry))
        return places.pop() if places else None

    def rest(self) -> list[tuple[str, str, bool]]:
        """Return what is gone for good, and whether it was a directory."""
        return [
            (directory, name, entry.is_dir)
            for entry, places in self._places.items()
            for directory, name in places
        ]


def _facts(entry: Entry) -> Entry:
    """Return what stays the same of a file or directory when it is moved."""
    return Entry(True, entry.inode, 0, 0) if entry.is_dir else entry


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
