"""Data types of transfers by URL, and the interface of a kind of transfer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from pilotage.base.supervise import together
from pilotage.data.transfer.url import Url

#: The size of what does not say how long it is.
UNKNOWN = -1

#: The name of the list of files that is written last, so that it is there only if all files are.
MANIFEST = "pilotage-manifest.jsonl"


class TransferItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file, as its source describes it."""

    #: Its path below the folder, parts joined by `/`.
    name: str
    size: int
    #: Empty if the source does not say.
    sha256: str = ""
    #: When it was last written, in nanoseconds since 1970; 0 if the source does not say.
    mtime: int = 0
    #: Whatever else of the source changes with the content.
    mark: str = ""
    executable: bool = False
    #: The bytes that it takes up, if that is less than its size because it has holes.
    stored: int = UNKNOWN

    @property
    def need(self) -> int:
        """The bytes of disk that it wants."""
        return max(0, self.size if self.stored == UNKNOWN else self.stored)


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """The features of a kind of transfer."""

    #: The source can tell the SHA-256 of a file, or the protocol checks one of its own.
    checksum: bool = False
    #: What is submitted twice under one key is done once.
    idempotent: bool = False
    #: The bytes go from server to server and not through us.
    third_party: bool = False
    #: A file appears at the destination whole or not at all.
    atomic: bool = False
    #: The time of the last change arrives with the file.
    times: bool = False
    #: It notices by itself when a file changes while it is copied.
    steady: bool = False


class TransferListing(msgspec.Struct, frozen=True):
    """The files of a URL: one, or those of a folder, one after another."""

    #: The folder that names of items are below.
    base: Url
    folder: bool
    #: Close it if it is not exhausted: a process may be behind it.
    items: AsyncGenerator[TransferItem, None]


class TransferKind(Protocol):
    """A kind of transfer. It moves bytes; others check them and give them their names."""

    @property
    def flags(self) -> Flags:
        """Its features."""
        ...

    async def look(self, url: Url) -> TransferListing:
        """Find out what is there; raise `NotFound` if nothing is."""
        ...

    async def fetch(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Bring files to their names below a private folder.

        What is there under a name is the beginning of that file and may be gone on with.
        """
        ...

    async def send(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Put files of a folder below a URL, each under a temporary name first if possible."""
        ...

    async def close(self) -> None:
        """Let connections go."""
        ...


async def each(
    items: Sequence[TransferItem], act: Callable[[TransferItem], Awaitable[None]], most: int
) -> None:
    """Process each file, at most `most` at once; the first error ends all."""
    todo = iter(items)

    async def work() -> None:
        for item in todo:
            await act(item)

    await together(work() for _ in range(min(most, len(items))))
