"""Data types of staging."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from pilotage.data.transfer.version import Version

#: Receives the bytes done and the bytes known, since the last time that nothing was under way.
Report = Callable[[int, int], None]

#: Hashes a stretch of a file here, given by offset and length.
Hash = Callable[[int, int], str]

#: Seconds that a site may take to look at what it has: it may hash terabytes.
PATIENCE_S = 3600.0

#: Files of at least this size are resumed, and compared with their earlier version.
BIG = 4 << 20


class StagingSite(Protocol):
    """A site, as far as bulk data is concerned."""

    async def bulk(
        self, words: Sequence[str], *, stdin: int | None, stdout: int | None
    ) -> asyncio.subprocess.Process:
        """Run our program there; nothing as a descriptor means a pipe of the process."""
        ...

    async def call(self, op: str, *, patience: float = ..., **values: object) -> dict[str, Any]:
        """Call the helper there, for at most `timeout` seconds."""
        ...


class Digest(msgspec.Struct, frozen=True):
    """The identity of content."""

    sha256: str
    size: int


class WantedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file to fetch."""

    remote: str
    local: str
    size: int
    sha256: str


class WantedFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder to fetch, by the list of its files."""

    remote: str
    local: str
    files: dict[str, Digest]


class Key(NamedTuple):
    """A version of a file here."""

    path: str
    version: Version


def name_of_path(path: str) -> str:
    """Return the name of the last version of a file that the site received."""
    return _name("path", os.fsencode(path))


def name_of_version(key: Key) -> str:
    """Name one version of a file."""
    return _name("version", os.fsencode(key.path) + b"\0" + repr(tuple(key.version)).encode())


def _name(kind: str, data: bytes) -> str:
    return hashlib.sha256(kind.encode() + b"\0" + data).hexdigest()
