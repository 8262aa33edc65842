"""Inspection of outputs that an attempt has left, compared with its manifest."""

from __future__ import annotations

import functools
import hashlib
import secrets
import shutil
from pathlib import Path

import msgspec
from anyio.to_thread import run_sync

from pilotage.base import errors, text
from pilotage.data.transfer.courier import Courier
from pilotage.data.transfer.model import UNKNOWN, TransferItem
from pilotage.edge import handoff
from pilotage.edge.handoff import HUB, Artifact, DataStores

#: Of more files only the number is kept.
_MOST_FILES = 100_000


class LeftData(msgspec.Struct):
    """The outputs that were found at a URL."""

    url: str
    digest: str = ""
    items: dict[str, TransferItem] = {}
    bytes: int = 0
    #: Its problem; empty if there is none.
    trouble: str = ""

    @property
    def files(self) -> tuple[Artifact, ...]:
        """The files to record."""
        some = list(self.items.values())[:_MOST_FILES]
        return tuple(Artifact(one.name, one.size, one.sha256) for one in some)


class Inspector:
    """Inspects outputs of attempts, by the hub's own access."""

    def __init__(self, courier: Courier, stores: DataStores, scratch: Path) -> None:
        """Take a private folder."""
        self._courier, self._stores, self._scratch = courier, stores, scratch

    async def look(self, place: str, digest: str, *, deep: bool = False) -> LeftData:
        """Check whether all files of the manifest with this digest are there.

        Names and sizes are compared, with `deep` all bytes. Temporary errors are raised.
        """
        found = LeftData(handoff.seen(self._stores, place, HUB))
        try:
            manifest = await self._courier.look(found.url)
            found.digest, found.bytes = manifest.digest, manifest.bytes
            found.items = {item.name: item for item in manifest}
            if digest and manifest.digest != digest:
                found.trouble = f"{found.url} has the manifest {manifest.digest}, not {digest}"
            elif not all(item.sha256 for item in found.items.values()):
                found.trouble = f"{found.url} has no manifest"
            else:
                found.trouble = await self._missing(found)
            if deep and not found.trouble:
                await self._fetch(found)
        except (errors.NotFound, errors.Conflict, errors.Damaged) as error:
            found.trouble = error.message
        return found

    async def _missing(self, found: LeftData) -> str:
        try:
            listed = await self._courier.look(found.url, plain=True)
        except errors.NotFound:
            # Not every server lists folders; readers will notice missing files.
            return ""
        sizes = {item.name: item.size for item in listed}
        for name, item in found.items.items():
            if name not in sizes:
                return f"{text.show(name)} is gone from {found.url}"
            if sizes[name] not in (item.size, UNKNOWN):
                return f"{text.show(name)} at {found.url} has {sizes[name]} bytes, not {item.size}"
        return ""

    async def _fetch(self, found: LeftData) -> None:
        folder = self._scratch / secrets.token_hex(8)
        try:
            await self._courier.fetch(found.url, str(folder), pinned=found.digest)
        finally:
            await run_sync(functools.partial(shutil.rmtree, folder, ignore_errors=True))

    async def small(self, found: LeftData, name: str, most: int) -> bytes:
        """Fetch a file of at most `most` bytes; raise `Damaged` if it differs from the manifest."""
        item = found.items.get(name)
        if item is None:
            raise errors.NotFound(f"there is no {text.show(name)}")
        if item.size > most:
            message = f"it has {item.size} bytes; the limit is {most}"
            raise errors.TooLarge(message, hint="a result is small; large data is an output")
        try:
            body = await self._courier.content(handoff.address(found.url, name), most)
        except (errors.NotFound, errors.TooLarge) as error:
            raise errors.Damaged(error.message) from error
        if len(body) != item.size or hashlib.sha256(body).hexdigest() != item.sha256:
            raise errors.Damaged(f"{text.show(name)} is not what its manifest says")
        return body
