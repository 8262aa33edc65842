"""Inotify watches, and which directories must be polled instead."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path

from inotify_simple import flags

from pilotage.base.text import show
from pilotage.event.file.bits import file_mask, way_mask
from pilotage.event.file.model import NAMED, PASSED, TAKEN, split
from pilotage.event.file.queue import InotifyQueue
from pilotage.event.model import EventKind


class Role(IntEnum):
    """What a directory is watched for; a higher value includes more."""

    #: Only to see that its entries change.
    EDGE = NAMED
    #: It leads to directories whose entries may match.
    WAY = PASSED
    #: Its entries may match.
    FULL = TAKEN


class DirectoryNode:
    """A watched directory."""

    __slots__ = ("gone", "kids", "name", "number", "path", "role")

    def __init__(self, path: str, number: int, role: Role) -> None:
        """Begin with no watched directories in it."""
        self.path = path
        self.name = split(path)[1]
        self.number = number
        self.role = role
        #: Whether it was deleted; what happened in it before may still have to be said.
        self.gone = False
        self.kids: dict[str, DirectoryNode] = {}

    def walk(self) -> Iterator[DirectoryNode]:
        """Return it and all below."""
        stack = [self]
        while stack:
            node = stack.pop()
            stack.extend(node.kids.values())
            yield node


class Moving:
    """A directory that left; where it went is not known yet."""

    __slots__ = ("node", "path", "since")

    def __init__(self, path: str, node: DirectoryNode | None) -> None:
        """Remember its watches, if it had any."""
        self.path = path
        self.node = node
        self.since = time.monotonic()


class Tree:
    """The watched directories, by number and by path.

    A watch belongs to a directory, not to its path: when a directory is moved, its watch and those
    below it go along and only change their labels.
    """

    def __init__(self) -> None:
        """Start with none."""
        #: Directories by the number of their watch; also those that left and may come back.
        self.by_number: dict[int, DirectoryNode] = {}
        #: Directories by their path.
        self.by_path: dict[str, DirectoryNode] = {}

    def add(self, path: str, number: int, role: Role) -> DirectoryNode:
        """Label a watch; the directory may have been known under another path."""
        node = self.by_number.get(number)
        if node is None or node.gone:
            node = DirectoryNode(path, number, role)
            self.by_number[number] = node
        node.role = role
        if self.by_path.get(path) is not node:
            self.detach(node)
            self.attach(node, path)
        return node

    def detach(self, node: DirectoryNode) -> None:
        """Take the labels off a directory and all below it; their watches stay."""
        if self.by_path.get(node.path) is not node:
            return
        parent = self.by_path.get(split(node.path)[0])
        if parent is not None and parent.kids.get(node.name) is node:
            del parent.kids[node.name]
        for each in node.walk():
            self.by_path.pop(each.path, None)

    def attach(self, node: DirectoryNode, path: str) -> list[int]:
        """Label a detached directory and all below it; return watches that it pushed out."""
        there = self.by_path.get(path)
        pushed = self.forget(there) if there is not None and there is not node else []
        directory, node.name = split(path)
        old = node.path
        for each in node.walk():
            each.path = path + each.path[len(old) :]
            self.by_path[each.path] = each
        parent = self.by_path.get(directory)
        if parent is not None and parent is not node:
            parent.kids[node.name] = node
        return pushed

    def bury(self, node: DirectoryNode) -> None:
        """Take a deleted directory out; its number still leads to it until it is forgotten."""
        self.detach(node)
        for each in node.walk():
            each.gone = True

    def forget(self, node: DirectoryNode) -> list[int]:
        """Drop a directory and all below it; return their watches."""
        self.detach(node)
        numbers = []
        for each in node.walk():
            # A directory taken for deleted may have been found again meanwhile.
            if self.by_number.get(each.number) is each:
                del self.by_number[each.number]
                numbers.append(each.number)
        return numbers

    def labelled(self, node: DirectoryNode) -> bool:
        """Return whether a directory has a path now, or had one until it was deleted."""
        return node.gone or self.by_path.get(node.path) is node


#: Types whose files other hosts or servers change; inotify sees only what this host does.
BLIND = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "lustre", "gpfs", "9p", "afs", "coda"),
        *("beegfs", "fhgfs", "ceph", "panfs", "pvfs2", "orangefs", "ocfs2", "gfs2", "glusterfs"),
        *("fuse", "virtiofs", "vboxsf", "prl_fs", "vmhgfs", "wekafs", "daos", "exafs", "quobyte"),
    }
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


def read_mounts(table: str) -> dict[str, str]:
    """Return the type of the file system at each mount point of a `mountinfo` table."""
    types: dict[str, str] = {}
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > 4 and after:
            point = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4])
            # The last mount on a point hides those before it.
            types[point] = after.split(" ", 1)[0]
    return types


def type_of(path: str, types: dict[str, str]) -> str:
    """Return the type of the file system that holds an absolute path."""
    place = path
    while place not in types:
        if place in {"/", ""}:
            return ""
        place = place.rpartition("/")[0] or "/"
    return types[place]


def is_blind(kind: str) -> bool:
    """Return whether changes on a file system of this type can be hidden from inotify."""
    return kind in BLIND or kind.startswith("fuse.")


def blind(path: str) -> bool:
    """Return whether inotify may miss changes at a path."""
    try:
        table = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:
        return False
    real = str(Path(path).resolve())
    return is_blind(type_of(real, read_mounts(table)))


_NO_ROOM = """no inotify watch is left for {path} and what is below it: it is polled instead; \
raise the limit with `sysctl fs.inotify.max_user_watches={more}`"""


class Watches:
    """The watched directories, and the ones that cannot be watched."""

    def __init__(
        self,
        queue: InotifyQueue | None,
        kinds: frozenset[EventKind],
        mode: str,
        warn: Callable[[str], None],
    ) -> None:
        """Begin with none; without a queue everything is polled."""
        self.tree = Tree()
        #: Directories that are polled with all below them, and whether only time tells there
        #: that a file is complete.
        self.polled: dict[str, bool] = {}
        #: Watches on the nearest directories above roots that do not exist.
        self.above: dict[int, str] = {}
        self._queue = queue
        self._mode = mode
        self._warn = warn
        self._blind: dict[int, bool] = {}
        self.reshape(kinds)

    def reshape(self, kinds: frozenset[EventKind]) -> None:
        """Ask only for what these kinds need, of each directory that is set from now on."""
        self._masks = {Role.FULL: file_mask(kinds), Role.WAY: way_mask(), Role.EDGE: way_mask()}

    def set(self, path: str, role: Role, *, follow: bool) -> bool:
        """Watch a directory; tell whether it is watched, or else not there or to be polled."""
        mask = self._masks[role]
        mask |= int(flags.MOVE_SELF) if follow else int(flags.DONT_FOLLOW)
        number = self._add(path, mask)
        if number is None:
            return False
        before = self.tree.by_number.get(number)
        if before is not None and before.path != path and self._same(before.path, path):
            # One directory has one watch, which reports one path: the other path is polled.
            self.poll(path, still=False)
            return False
        self.tree.add(path, number, role)
        return True

    def poll(self, path: str, *, still: bool) -> None:
        """Poll a directory with all below it."""
        self.drop(path)
        self.polled[path] = still

    def must_poll(self, path: str, device: int) -> bool:
        """Return whether the kernel does not report changes on the device of a path."""
        if self._mode == "poll":
            return True
        if self._mode == "inotify":
            return False
        if device not in self._blind:
            self._blind[device] = blind(path)
        return self._blind[device]

    def drop(self, path: str) -> None:
        """Neither watch nor poll a directory and all below it."""
        node = self.tree.by_path.get(path)
        if node is not None:
            self.drop_node(node)
        self.unpoll(path)

    def unpoll(self, path: str) -> None:
        """Do not poll a directory nor what is below it."""
        for top in [top for top in self.polled if top == path or top.startswith(path + "/")]:
            del self.polled[top]

    def drop_node(self, node: DirectoryNode) -> None:
        """Take back the watches of a directory and all below it, wherever it is now."""
        for number in self.tree.forget(node):
            self.unwatch(number)

    def unwatch(self, number: int) -> None:
        """Take back one watch."""
        if self._queue is not None:
            self._queue.unwatch(number)

    def await_roots(self, roots: list[str]) -> None:
        """Watch the nearest directories above roots that do not exist."""
        before, self.above = self.above, {}
        for root in roots:
            self._await(root)
        for number in before.keys() - self.above.keys() - self.tree.by_number.keys():
            self.unwatch(number)

    def _await(self, root: str) -> None:
        mask = way_mask() | int(flags.MASK_ADD | flags.MOVE_SELF)
        place = _nearest(root)
        while (number := self._add(place, mask)) is not None:
            self.above[number] = place
            # One further down may have been made before the watch was set.
            nearer = _nearest(root)
            if nearer in {place, root}:
                return
            place = nearer

    def _add(self, path: str, mask: int) -> int | None:
        if self._queue is None:
            return None
        try:
            return self._queue.watch(path, mask)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.ENOMEM}:
                self.poll(path, still=False)
                more = 2 * max(len(self.tree.by_number), 8192)
                self._warn(_NO_ROOM.format(path=show(path), more=more))
            elif error.errno == errno.EACCES:
                self._warn(f"{show(path)} cannot be watched: {error.strerror}")
            return None

    def _same(self, one: str, other: str) -> bool:
        """Return whether two paths are one directory now."""
        try:
            return os.path.samefile(one, other)
        except OSError:
            return False


def _nearest(root: str) -> str:
    """Return the longest part of a path that is a directory."""
    place = root
    while place != "/" and not os.path.isdir(place):
        place = split(place)[0]
    return place
