"""The directory that each inotify watch belongs to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from enum import IntEnum

from pilotage.event.file.model import NAMED, PASSED, TAKEN, split


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
