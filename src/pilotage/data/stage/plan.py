"""Decisions about which data must be sent (pure functions)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from pilotage.base import errors
from pilotage.base.paths import DIGEST
from pilotage.data.stage.model import Hash, Key

T = TypeVar("T")

#: The most files of one channel, and the bytes after which it gets no further file.
CHANNEL_FILES = 2000
CHANNEL_BYTES = 256 << 20


class BlockSums(msgspec.Struct, frozen=True):
    """Hashes of the blocks of a file at the site."""

    size: Annotated[int, msgspec.Meta(ge=0)]
    step: Annotated[int, msgspec.Meta(ge=4096)]
    blocks: list[str]


class PartialFile(BlockSums, frozen=True):
    """The part of a file that has arrived."""

    part: str


class Holdings(msgspec.Struct, frozen=True):
    """The requested files that a site already has."""

    have: list[str]
    same: dict[str, Annotated[str, msgspec.Meta(pattern=f"^{DIGEST.pattern}$")]] = {}
    parts: dict[str, PartialFile] = {}


class SendRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One file as it is sent: see `receive` for what the site makes of it."""

    name: str
    digest: str | None
    size: int
    spans: list[tuple[int, int]]
    part: str | None = None
    names: list[str] = []

    @property
    def weight(self) -> int:
        """Count the bytes that move."""
        return sum(length for _, length in self.spans)


def batches(wanted: Iterable[tuple[Key, str]], have: Collection[str]) -> list[list[Key]]:
    """Group files by channel: each content once, and nothing that the site has."""
    seen = set(have)
    groups: list[list[Key]] = []
    weight = 0
    for key, sha256 in wanted:
        if sha256 in seen:
            continue
        seen.add(sha256)
        if not groups or len(groups[-1]) >= CHANNEL_FILES or weight >= CHANNEL_BYTES:
            groups.append([])
            weight = 0
        groups[-1].append(key)
        weight += key.version.size
    return groups


def whole(size: int) -> list[tuple[int, int]]:
    """Send all of a file."""
    return [(0, size)] if size else []


def resume(size: int, part: BlockSums, ours: Hash) -> list[tuple[int, int]]:
    """Send what the part has not, or has wrong."""
    right = [
        at for at, block in _blocks(part) if at + part.step <= size and ours(at, part.step) == block
    ]
    return _rest(size, [(at, part.step) for at in right])


def _blocks(sums: BlockSums) -> Iterable[tuple[int, str]]:
    return ((at * sums.step, block) for at, block in enumerate(sums.blocks))


def _rest(size: int, covered: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """List the stretches between those that are covered, which are in order."""
    found: list[tuple[int, int]] = []
    end = 0
    for at, length in covered:
        if at > end:
            found.append((end, at - end))
        end = at + length
    if end < size:
        found.append((end, size - end))
    return found


def had(answer: dict[str, Any]) -> Holdings:
    """Read what a site says that it has."""
    return _read(answer, Holdings)


def _read(answer: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise errors.Unavailable(f"the site's answer is not understood: {error}") from error
