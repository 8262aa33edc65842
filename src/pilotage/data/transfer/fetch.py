"""Fetch a URL: into a temporary place, verified, then renamed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import tempfile
from typing import Protocol

import msgspec

from pilotage.base import errors, paths, text
from pilotage.data.transfer import arrival, failures, manifest, plan
from pilotage.data.transfer.manifest import Manifest
from pilotage.data.transfer.model import MANIFEST, TransferItem, TransferKind
from pilotage.data.transfer.plan import FileAction
from pilotage.data.transfer.retrying import AttemptProgress
from pilotage.data.transfer.url import Url


class Receipt(msgspec.Struct, frozen=True):
    """The result of a transfer."""

    files: int
    bytes: int
    #: Files that were moved; the others were there already.
    moved: int
    #: What identifies the list of files.
    digest: str
    #: Whether it is a folder rather than one file.
    folder: bool = True
    #: The SHA-256 of the one file that was sent; empty for a folder.
    sha256: str = ""


class KnownContent(Protocol):
    """Files by content that need not come."""

    def take(self, item: TransferItem, path: str) -> bool:
        """Put a file in its place, if it is known; its digest is."""
        ...

    def keep(self, item: TransferItem, path: str) -> None:
        """Take note of a file that has come."""


async def look(kind: TransferKind, url: Url, *, plain: bool = False) -> Manifest:
    """List what is there: by its manifest if it has one, otherwise as the server lists it.

    With `plain` it is as the server lists it in any case.
    """
    slash = url.path.endswith("/")
    if slash and not plain and (found := await published(kind, url)) is not None:
        return found
    listing = await kind.look(url)
    if (
        listing.folder
        and not (slash or plain)
        and (found := await published(kind, url)) is not None
    ):
        return found
    made = Manifest(listing.base, folder=listing.folder)
    async with contextlib.aclosing(listing.items):
        async for item in listing.items:
            made.add(item)
    return made


async def published(kind: TransferKind, url: Url) -> Manifest | None:
    """Read the manifest of a folder, which tells that it is complete."""
    try:
        listing = await kind.look(url.join(MANIFEST))
        items = [item async for item in listing.items]
    except errors.NotFound:
        return None
    if listing.folder:
        raise errors.Conflict(f"{url.join(MANIFEST)} is a folder")
    with tempfile.TemporaryDirectory(prefix="pilotage-") as folder:
        await kind.fetch(listing.base, items, folder)
        base = msgspec.structs.replace(url, path=url.path.rstrip("/") or "/", query="")
        return await asyncio.to_thread(_read, base, os.path.join(folder, MANIFEST))


async def content(kind: TransferKind, url: Url, most: int) -> bytes:
    """Read a file up to a maximum size; nothing of it stays here."""
    listing = await kind.look(url)
    items = [item async for item in listing.items]
    if listing.folder:
        raise errors.Conflict(f"{url} is a folder")
    (item,) = items
    if item.size > most:
        raise errors.TooLarge(f"{url} has {item.size} bytes; the limit is {most}")
    with tempfile.TemporaryDirectory(prefix="pilotage-") as folder:
        await kind.fetch(listing.base, items, folder)
        return await asyncio.to_thread(_beginning, os.path.join(folder, item.name), most + 1)


def _beginning(path: str, most: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(most)


def _read(base: Url, path: str) -> Manifest:
    with open(path, "rb") as file:
        return manifest.read(base, file)


async def fetch(
    kind: TransferKind, url: Url, target: str, *, replace: bool = False,
    steps: AttemptProgress | None = None,
    spare: int = 0, pinned: str = "", known: KnownContent | None = None,
) -> Receipt:  # fmt: skip
    """Bring a file or all of a folder into a folder here, of whose disk `spare` bytes stay free.

    What is `known` by its digest does not come.

    Raises `Conflict` for a file whose name is taken by another, unless that is to be replaced; and
    for a folder whose manifest has another digest than is `pinned`, before anything is brought.
    """
    steps = steps or AttemptProgress()
    found = await look(kind, url)
    if pinned and found.folder and found.digest != pinned:
        message = f"{url} has the manifest {found.digest} instead of {pinned}"
        raise errors.Conflict(message, hint="its producer must send it again")
    try:
        wanted, part = await asyncio.to_thread(
            _prepare, found, target, spare, replace=replace, known=known
        )
        for batch in plan.batches(wanted):
            left = [item for item in batch if not _complete(item, part)]
            before = await asyncio.to_thread(_measure, left, part)
            try:
                if left:
                    await asyncio.to_thread(_folders, left, part)
                    await kind.fetch(found.base, left, part)
            except errors.PilotageError:
                steps.moved += max(0, await asyncio.to_thread(_measure, left, part) - before)
                raise
            await asyncio.to_thread(arrival.settle, batch, part, target)
            if known is not None:
                await asyncio.to_thread(_keep, known, batch, target)
            steps.moved += len(batch)
        if wanted.files and not kind.flags.steady:
            await _look_again(kind, url, wanted)
        await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)
    except OSError as error:
        raise failures.of_writing(error) from error
    return Receipt(found.files, found.bytes, wanted.files, found.digest, found.folder)


def _prepare(
    found: Manifest, target: str, spare: int, *, replace: bool, known: KnownContent | None = None
) -> tuple[Manifest, str]:  # fmt: skip
    """Find out which files must come, whether they fit, and where they come first."""
    os.makedirs(target, exist_ok=True)
    wanted = Manifest(found.base, folder=found.folder)
    for item in found:
        match arrival.look(item, target):
            case FileAction.HAVE:
                continue
            case FileAction.CONFLICT if not replace:
                where = text.show(os.path.join(target, item.name))
                raise errors.Conflict(
                    f"{where} exists already, and differs from {found.base}",
                    hint="fetch into another folder, or allow it to be replaced",
                )
            case _ if known and item.sha256 and known.take(item, paths.inside(target, item.name)):
                continue
            case _:
                wanted.add(item)
    part = os.path.join(target, f"{_mark(found)}{found.digest[:16]}.part")
    need = sum(max(0, item.need - arrival.arrived(item, part)) for item in wanted)
    plan.check_room(target, arrival.room(target), files=wanted.files, size=need, spare=spare)
    _make(part, found, target)
    return wanted, part


def _keep(known: KnownContent, items: list[TransferItem], target: str) -> None:
    for item in items:
        if item.sha256:
            known.keep(item, os.path.join(target, item.name))


def _mark(found: Manifest) -> str:
    """Begin the name of the place aside: all of one source begin alike."""
    return f".{hashlib.sha256(str(found.base).encode()).hexdigest()[:16]}."


def _make(part: str, found: Manifest, target: str) -> None:
    """Make the place aside: one for each list, so that nothing of another is mixed in."""
    for entry in os.listdir(target):
        path = os.path.join(target, entry)
        if entry.startswith(_mark(found)) and entry.endswith(".part") and path != part:
            # The source has changed since: these are parts of an old version.
            shutil.rmtree(path, ignore_errors=True)
    paths.inside(target, os.path.basename(part))
    os.makedirs(part, mode=0o700, exist_ok=True)


def _folders(items: list[TransferItem], part: str) -> None:
    for folder in {os.path.dirname(item.name) for item in items}:
        os.makedirs(os.path.join(part, folder), exist_ok=True)


def _complete(item: TransferItem, part: str) -> bool:
    """Return whether an earlier attempt has brought all of a file."""
    return item.size > 0 and arrival.arrived(item, part) == item.size and not _holes(item)


def _holes(item: TransferItem) -> bool:
    # A file that was made at its full length before its data came tells nothing by its length.
    return item.stored >= 0


def _measure(items: list[TransferItem], part: str) -> int:
    return sum(arrival.arrived(item, part) for item in items)


async def _look_again(kind: TransferKind, url: Url, moved: Manifest) -> None:
    """See that nothing has changed meanwhile that no digest vouches for."""
    before = {item.name: (item.size, item.mtime, item.mark) for item in moved if not item.sha256}
    if not before:
        return
    listing = await kind.look(url)
    async with contextlib.aclosing(listing.items):
        async for item in listing.items:
            was = before.pop(item.name, None)
            if was is not None and was != (item.size, item.mtime, item.mark):
                raise failures.changed(item.name)
    if before:
        raise failures.changed(min(before))
