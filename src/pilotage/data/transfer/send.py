"""Send a file or a folder to a URL: temporary names first, the manifest last."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence

import msgspec

from pilotage.base import errors, paths, text
from pilotage.data.transfer import failures, plan, tree
from pilotage.data.transfer.fetch import Receipt, published
from pilotage.data.transfer.manifest import Manifest
from pilotage.data.transfer.model import MANIFEST, UNKNOWN, TransferItem, TransferKind
from pilotage.data.transfer.plan import ExistingFile, FileAction
from pilotage.data.transfer.retrying import AttemptProgress
from pilotage.data.transfer.url import Url


async def send(
    kind: TransferKind, source: str, url: Url, *, replace: bool = False, resend: bool = False,
    steps: AttemptProgress | None = None,
) -> Receipt:  # fmt: skip
    """Put a file, or all of a folder, into the folder that a URL names.

    If the manifest is there, all is there: then nothing is done. Raises
    `Conflict` if another result is there. With `resend` nothing that is there is trusted: all
    is sent over it, since it may have been changed or lost.
    """
    steps = steps or AttemptProgress()
    try:
        marked, folder, only = await asyncio.to_thread(_list, source, url)
        wanted = _plain(marked)
        before = None if resend else await published(kind, url)
        if before is not None and before.digest == wanted.digest:
            return _receipt(wanted, 0, only)
        if before is not None:
            raise errors.Conflict(
                f"another result is at {url} already",
                hint="each attempt of a job needs a folder of its own",
            )
        there = {} if resend else await _there(kind, url)
        moving = [item for item in marked if _moves(item, there, url, replace=replace)]
        for batch in plan.batches(moving):
            await kind.send(url, batch, folder)
            await asyncio.to_thread(_unchanged, batch, folder)
            # Where times are not kept the next attempt sends it again: that is no progress.
            steps.moved += len(batch) if kind.flags.times else 0
        await _arrived(kind, url, wanted)
        await _publish(kind, url, wanted)
    except OSError as error:
        raise failures.of_reading(error) from error
    return _receipt(wanted, len(moving), only)


def _receipt(sent: Manifest, moved: int, only: str) -> Receipt:
    sha256 = next(iter(sent)).sha256 if only else ""
    return Receipt(sent.files, sent.bytes, moved, sent.digest, not only, sha256)


def _list(source: str, url: Url) -> tuple[Manifest, str, str]:
    """List files with their digests, each of one version, which its mark tells.

    Return their folder, too, and the name of the file if only one is sent.
    """
    path = os.path.abspath(source)
    folder, only = (path, "") if os.path.isdir(path) else os.path.split(path)
    found = Manifest(url, folder=True)
    for item in _items(folder, only):
        if item.name == MANIFEST:
            raise errors.Conflict(f"{MANIFEST} is a name that results may not have")
        with paths.opened(folder, item.name) as file:
            facts = os.fstat(file)
            sha256 = tree.digest(file)
            if tree.item(item.name, facts).mark != item.mark or not _same(file, item):
                raise failures.changed(item.name)
        found.add(msgspec.structs.replace(item, sha256=sha256, stored=UNKNOWN))
    return found, folder, only


def _items(folder: str, only: str) -> Iterator[TransferItem]:
    if only:
        with paths.opened(folder, only) as file:
            yield tree.item(only, os.fstat(file))
    else:
        yield from tree.walk(folder)


def _same(file: int, item: TransferItem) -> bool:
    return tree.item(item.name, os.fstat(file)).mark == item.mark


def _plain(marked: Manifest) -> Manifest:
    """Leave out values that mean nothing to others."""
    found = Manifest(marked.base, folder=True)
    for item in marked:
        found.add(msgspec.structs.replace(item, mark=""))
    return found


async def _there(kind: TransferKind, url: Url) -> dict[str, ExistingFile]:
    """List what is at the destination; nothing if there is no such folder."""
    keeps = kind.flags.times
    try:
        listing = await kind.look(url.join(""))
        return {
            item.name: ExistingFile(item.size, item.mtime if keeps else 0, item.sha256)
            async for item in listing.items
        }
    except errors.NotFound:
        return {}


def _moves(item: TransferItem, there: dict[str, ExistingFile], url: Url, *, replace: bool) -> bool:
    # A digest of ours that the server cannot tell is none to compare: times and sizes are.
    found = there.get(item.name)
    known = item if found is not None and found.sha256 else msgspec.structs.replace(item, sha256="")
    step = plan.step(known, found)
    if step is FileAction.CONFLICT and not replace:
        raise errors.Conflict(
            f"{url.join(item.name)} is there already, and is another file",
            hint="send to another folder, or allow it to be replaced",
        )
    return step is not FileAction.HAVE


def _unchanged(items: Sequence[TransferItem], folder: str) -> None:
    for item in items:
        with paths.opened(folder, item.name) as file:
            if not _same(file, item):
                raise failures.changed(item.name)


async def _arrived(kind: TransferKind, url: Url, wanted: Manifest) -> None:
    """See that all is there, by a listing if there can be one, otherwise file by file."""
    listed: dict[str, TransferItem] | None = None
    with contextlib.suppress(errors.NotFound):
        listing = await kind.look(url.join(""))
        listed = {item.name: item async for item in listing.items}
    for item in wanted:
        if listed is not None:
            found = listed.get(item.name)
        else:
            one = await kind.look(url.join(item.name))
            found = await anext(one.items, None)
        whole = found is not None and found.size in (item.size, UNKNOWN)
        if not whole or (found and found.sha256 and found.sha256 != item.sha256):
            raise errors.Unavailable(f"{text.show(item.name)} did not arrive whole at {url}")


async def _publish(kind: TransferKind, url: Url, wanted: Manifest) -> None:
    with tempfile.TemporaryDirectory(prefix="pilotage-") as folder:
        path = os.path.join(folder, MANIFEST)
        written = await asyncio.to_thread(_write, path, wanted)
        await kind.send(url, [written], folder)


def _write(path: str, wanted: Manifest) -> TransferItem:
    with open(path, "wb") as file:
        wanted.write(file)
        file.flush()
        return tree.item(MANIFEST, os.fstat(file.fileno()))
