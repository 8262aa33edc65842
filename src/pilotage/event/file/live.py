"""Apply kernel records: directories first in order, then files by their state."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable

from inotify_simple import flags

from pilotage.base.text import show
from pilotage.event.file.bits import (
    CAME,
    CHANGED,
    CLOSED,
    DELETED,
    ENTRIES,
    FRESH,
    LEFT,
    MADE,
    TOLD,
    WHOLE,
)
from pilotage.event.file.complete import CompletenessGate, entry_of
from pilotage.event.file.marks import PAIRING, Marks, decode
from pilotage.event.file.model import Entry, join, split, within
from pilotage.event.file.outbox import Outbox
from pilotage.event.file.survey import Survey, Visit
from pilotage.event.file.watches import DirectoryNode, Moving, Role, Watches
from pilotage.event.model import EventKind

_IGNORED = int(flags.IGNORED)
_UNMOUNT = int(flags.UNMOUNT)
_MOVE_SELF = int(flags.MOVE_SELF)


class Live:
    """Follows the kernel's records."""

    def __init__(
        self,
        survey: Survey,
        outbox: Outbox,
        gate: CompletenessGate,
        watches: Watches,
        warn: Callable[[str], None],
    ) -> None:
        """Start without running tasks."""
        self._survey = survey
        self._outbox = outbox
        self._gate = gate
        self._watches = watches
        self._tree = watches.tree
        self._warn = warn
        self._marks = Marks(self._special)
        self._moving: dict[int, Moving] = {}
        self._moved: list[tuple[Moving, str]] = []
        self._adopted: dict[str, int] = {}
        self._changed: set[int] = set()
        self._buried: deque[tuple[float, DirectoryNode]] = deque()
        #: Whether a root may have come or gone.
        self.roots_changed = False

    def gather(self, data: bytes, start: int) -> tuple[int, bool]:
        """Take records; return where it stopped, and whether some were dropped there."""
        position = self._marks.gather(data, start)
        return position, self._marks.overflowed

    def waiting(self) -> int:
        """Return for how many directories there is something to put into effect."""
        return sum(map(len, self._marks.names.values()))

    def due(self) -> float | None:
        """Return when the second half of a move is given up."""
        times = [moving.since + PAIRING for moving in self._moving.values()]
        first = self._marks.due()
        return min([*times, first] if first is not None else times, default=None)

    def settle(self) -> None:
        """Apply the gathered records."""
        self._outbox.begin()
        self._marks.expire()
        self._expire()
        self._leave()
        for number, names in self._marks.names.items():
            node = self._tree.by_number.get(number)
            if node is None:
                self._stray(number)
            elif self._tree.labelled(node):
                if node.role is Role.FULL:
                    self._files(node, names)
                if any(bits & ENTRIES for bits in names.values()):
                    self._changed.add(number)
        self._marks.clear()
        self._touch()
        self._outbox.send()
        self._directories()

    def _files(self, node: DirectoryNode, names: dict[bytes, int]) -> None:
        directory, gate, outbox = node.path, self._gate, self._outbox
        prefix = directory if directory == "/" else directory + "/"
        for raw, bits in names.items():
            name = decode(raw)
            path = prefix + name
            entry = entry_of(path)
            if bits & DELETED:
                self._deleted(node, name, bits, there=entry is not None)
            if entry is None:
                if bits & (MADE | CAME):
                    # A link that points to nothing yet, unless it is gone again.
                    gate.expect(CLOSED if bits & MADE else CAME, directory, name, None)
            elif bits & (CLOSED | WHOLE):
                other = self._origin(node.number, raw) if bits & CAME else ""
                owed, before = gate.release(path) if path in gate else (0, "")
                told = (bits | owed) & TOLD
                outbox.file(told, directory, name, entry, other or before, whole=True)
            else:
                self._unsure(node, name, bits, entry, raw)

    def _unsure(self, node: DirectoryNode, name: str, bits: int, entry: Entry, raw: bytes) -> None:
        """Deal with a file that was not closed."""
        early = bits & (MADE | CHANGED)
        # A scan may have been first; once it is forgotten what that said, the same would be news.
        whole = self._outbox.complete(join(node.path, name), entry)
        if early and self._outbox.wants(early):
            self._outbox.file(early, node.path, name, entry, whole=whole)
        if bits & CAME:
            other = self._origin(node.number, raw)
            self._gate.admit(CAME, node.path, name, entry, other, still=False)
        elif bits & MADE and not whole:
            self._gate.expect(CLOSED, node.path, name, entry)
        elif not early:
            # Only its time of change was set, perhaps: that makes no new version of it.
            self._gate.expect(0, node.path, name, entry)

    def _deleted(self, node: DirectoryNode, name: str, bits: int, *, there: bool) -> None:
        path = join(node.path, name)
        if not there:
            self._gate.release(path)
        if not bits & FRESH or self._outbox.said(path):
            self._outbox.lost(DELETED, node.path, name, is_dir=False, stale=False)
        elif not there:
            self._outbox.gone(node.path, name)

    def _origin(self, number: int, raw: bytes) -> str:
        return self._path(self._marks.origins.get((number, raw)))

    def _path(self, place: tuple[int, bytes] | None) -> str:
        node = self._tree.by_number.get(place[0]) if place is not None else None
        if place is None or node is None or not self._tree.labelled(node):
            return ""
        return join(node.path, decode(place[1]))

    def _leave(self) -> None:
        """Report files that left their names."""
        for departed, to in self._marks.left:
            node = self._tree.by_number.get(departed.number)
            if node is None or not self._tree.labelled(node):
                continue
            self._changed.add(departed.number)
            if node.role is Role.FULL:
                name = decode(departed.raw)
                path = join(node.path, name)
                # Something else may have come to that name since, and be waited for.
                if path in self._gate and not os.path.lexists(path):
                    self._gate.release(path)
                self._outbox.lost(LEFT, node.path, name, self._path(to), is_dir=False, stale=False)

    def _stray(self, number: int) -> None:
        if number in self._watches.above:
            self.roots_changed = True
        else:
            self._watches.unwatch(number)

    def _special(self, number: int, mask: int, cookie: int, raw: bytes) -> None:
        """Follow what happens to directories, in the order in which it happened."""
        node = self._tree.by_number.get(number)
        if number in self._watches.above or mask & _MOVE_SELF:
            self.roots_changed = True
        if node is None:
            return
        if mask & _IGNORED:
            self._bury(node)
            self.roots_changed = True
        elif mask & _UNMOUNT:
            self._warn(f"the file system of {show(node.path)} was unmounted")
        elif mask & ENTRIES and self._tree.labelled(node):
            self._changed.add(number)
            self._entry(node, decode(raw), mask, cookie)

    def _entry(self, node: DirectoryNode, name: str, mask: int, cookie: int) -> None:
        path = join(node.path, name)
        if mask & MADE:
            self._adopted[path] = MADE
        elif mask & DELETED:
            if self._adopted.pop(path, None) is None:
                self._outbox.lost(DELETED, node.path, name, is_dir=True, stale=False)
            self._outbox.tree_gone(path)
            self._watches.unpoll(path)
            self._bury(self._tree.by_path.get(path))
        elif mask & LEFT:
            self._adopted.pop(path, None)
            inner = self._tree.by_path.get(path)
            if inner is not None:
                self._tree.detach(inner)
            self._moving[cookie] = Moving(path, inner)
        elif mask & CAME:
            moving = self._moving.pop(cookie, None)
            if moving is None:
                self._adopted[path] = CAME
            else:
                if moving.node is not None and not self._tree.labelled(moving.node):
                    self._tree.attach(moving.node, path)
                self._moved.append((moving, path))

    def _bury(self, node: DirectoryNode | None) -> None:
        """Drop a deleted directory once all that happened in it is reported."""
        if node is not None and not node.gone:
            self._tree.bury(node)
            self._buried.append((time.monotonic(), node))

    def _expire(self) -> None:
        before = time.monotonic() - PAIRING
        while self._buried and self._buried[0][0] < before - PAIRING:
            self._tree.forget(self._buried.popleft()[1])
        came = [*self._adopted, *(to for _, to in self._moved)]
        gone = []
        for cookie, moving in list(self._moving.items()):
            # What is at its path by now must not be taken for what left.
            if moving.since <= before or any(within(moving.path, path) for path in came):
                del self._moving[cookie]
                gone.append((moving, ""))
        self._moved = gone + self._moved

    def _directories(self) -> None:
        """Walk what came, after saying what left."""
        for moving, to in self._moved:
            self._outbox.flush()
            self._survey.leave(moving.path, to)
            if to and self._enters(to):
                self._survey.scan([Visit(path=to, how=CAME, origin=moving.path)])
            else:
                if moving.node is not None and (to or not self._tree.labelled(moving.node)):
                    self._watches.drop_node(moving.node)
                if to:
                    self._survey.name(to, CAME)
            self._outbox.send()
        self._moved.clear()
        adopted, self._adopted = self._adopted, {}
        visits = []
        for path, how in adopted.items():
            if self._enters(path):
                visits.append(Visit(path=path, how=how, compare=False))
            else:
                self._survey.name(path, how)
        self._survey.scan(visits)
        self._outbox.send()

    def _enters(self, path: str) -> bool:
        return self._survey.enters(path)

    def _touch(self) -> None:
        """Report directories whose entries changed."""
        changed, self._changed = self._changed, set()
        if EventKind.DIR_MODIFIED not in self._outbox.kinds:
            return
        for number in changed:
            node = self._tree.by_number.get(number)
            if node is None or not self._tree.labelled(node):
                continue
            try:
                now = os.stat(node.path)
            except OSError:
                continue
            entry = Entry(True, now.st_ino, int(node.role), now.st_mtime_ns)
            self._outbox.directory(CHANGED, *split(node.path), entry)
