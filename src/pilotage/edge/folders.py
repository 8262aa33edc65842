"""Folders of jobs of this hub that are steps of workflows: inputs come in, outputs are taken out.

What is there already is not brought again, so all of it may be done again by who was killed.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Sequence
from pathlib import Path

from anyio.to_thread import run_sync

from pilotage.agent import staging
from pilotage.base import durable, errors, paths
from pilotage.data.transfer import tree
from pilotage.data.transfer.courier import Courier
from pilotage.edge import reach
from pilotage.edge.handoff import Piece
from pilotage.edge.reach import Reach


async def bring(here: Reach, root: Path, pieces: Sequence[Piece], folder: Path) -> int:
    """Bring inputs into a folder; say how many bytes those are."""
    done, aside = folder.with_name(f"{folder.name}.read"), folder.with_name(f"{folder.name}.in")
    before = await run_sync(_begin, folder, aside)
    if before is not None:
        return before
    size = 0
    for at, piece in enumerate(pieces):
        courier, address = _source(here, root, piece)
        target = str(aside / str(at))
        receipt = await courier.fetch(address, target, replace=True, pinned=piece.sha256)
        await run_sync(_put, piece, target, receipt.folder, folder)
        size += receipt.bytes
    await run_sync(_end, done, size, aside)
    return size


def read(folder: Path) -> int | None:
    """Say how many bytes were brought to a folder; nothing if not all were."""
    try:
        return int(folder.with_name(f"{folder.name}.read").read_text("ascii") or 0)
    except FileNotFoundError:
        return None


def _source(here: Reach, root: Path, piece: Piece) -> tuple[Courier, str]:
    if "://" not in piece.url:
        return here.own, reach.own(root, piece.url)
    return (here.inside if piece.own else here.outside), piece.url


def _begin(folder: Path, aside: Path) -> int | None:
    """Say how many bytes were brought; nothing if not all were: then all is begun anew."""
    before = read(folder)
    if before is None:
        for one in (folder, aside):
            # Files of a half that somebody left may have been moved.
            shutil.rmtree(one, ignore_errors=True)
            one.mkdir(parents=True, exist_ok=True)
    return before


def _put(piece: Piece, target: str, is_folder: bool, folder: Path) -> None:  # noqa: FBT001 - for a thread
    if piece.sha256 and not is_folder:
        _check(piece, target)
    staging.put(piece.path, target, is_folder, str(folder))


def _check(piece: Piece, target: str) -> None:
    (item,) = tree.walk(target)
    with paths.opened(target, item.name) as file:
        found = tree.digest(file)
    if found != piece.sha256:
        message = f"{piece.url} has the SHA-256 {found} instead of {piece.sha256}"
        raise errors.Conflict(message)


def _end(done: Path, size: int, aside: Path) -> None:
    durable.swap(done, str(size))
    durable.sync_folder(done.parent)
    shutil.rmtree(aside, ignore_errors=True)


async def gather(folder: Path, outputs: Sequence[str]) -> str:
    """Name a folder with the outputs of a job, by their paths."""
    paths = [(one, one) for one in outputs]
    return await run_sync(staging.gather, str(folder), paths, f"{folder}.out")


async def send(
    courier: Courier, folder: Path, source: str, address: str, *, anew: bool = False
) -> None:
    """Send what was gathered to its place; the manifest comes last.

    With `anew` all is sent, whatever the manifest there says.
    """
    try:
        await courier.send(source, address, replace=True, resend=anew)
    except (errors.Conflict, errors.Damaged):
        # The place is nobody else's: whatever is there is not what the job has left.
        await courier.send(source, address, resend=True)
    await run_sync(functools.partial(shutil.rmtree, f"{folder}.out", ignore_errors=True))
