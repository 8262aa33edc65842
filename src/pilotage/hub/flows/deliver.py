"""What comes out of a flow goes where it was asked to go, once all steps are done.

One output goes there as it is; several have a folder each, by their names. Its manifest comes last.
"""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

from anyio.to_thread import run_sync

from pilotage import errors, text
from pilotage.flow import definition, hand, records
from pilotage.flow.hand import HUB, Piece, Stores
from pilotage.flow.model import Artifact, Take
from pilotage.flow.records import Source
from pilotage.flow.template import line
from pilotage.flow.values import Values
from pilotage.hub.flows import local, reach
from pilotage.hub.flows.reach import Reach
from pilotage.payload.transfer.courier import Courier
from pilotage.store import Db


async def deliver(
    here: Reach, stores: Stores, db: Db, root: Path, scratch: Path, flow: int
) -> None:
    """Send what comes out of a flow; what was sent before is not sent again."""
    to, pieces = address(db, flow), outputs(db, flow)
    named = [
        Piece(hand.seen(stores, one.url, HUB), one.path, one.sha256, own=True) for one in pieces
    ]
    folder = scratch / f"to-{flow}"
    courier, where = _target(here, root, to)
    try:
        await local.bring(here, root, named, folder)
        await courier.send(str(folder), where, replace=True)
    finally:
        await run_sync(functools.partial(_remove, folder))


def _target(here: Reach, root: Path, to: str) -> tuple[Courier, str]:
    if "://" in to:
        return here.outside, to
    return here.own, reach.own(root, to)


def address(db: Db, flow: int) -> str:
    """Return where it goes; names in it are filled."""
    head = definition.head(db, flow)
    return line(head.flow.to, Values(db, head).look)


def outputs(db: Db, flow: int) -> list[Piece]:
    """List what comes out; a flow that says nothing of it gives what its last steps have left."""
    found: list[Piece] = []
    named = _named(db, flow)
    for name, take in named.items():
        path = hand.word(name) if len(named) > 1 else ""
        some = sources(db, flow, take)
        for at, one in enumerate(some):
            within = f"{path}/{at}".lstrip("/") if len(some) > 1 else path
            pieces = _pieces(db, one)
            if one.output and not pieces:
                raise errors.NotFound(f"`{one.step}` has left no `{one.output}`")
            found += [
                Piece(piece.url, f"{within}/{piece.path}".strip("/"), piece.sha256, own=True)
                for piece in pieces
            ]
    return found


def makers(db: Db, flow: int) -> list[Source]:
    """List who has left what comes out."""
    return [one for take in _named(db, flow).values() for one in sources(db, flow, take)]


def sources(db: Db, flow: int, take: Take) -> list[Source]:
    """List what is behind one output."""
    return [one for one in records.sources(db, flow, take) if one.place]


def _named(db: Db, flow: int) -> dict[str, Take]:
    named = definition.head(db, flow).flow.outputs
    if not named:
        named = {str(row[0]): str(row[0]) for row in db.rows("flow_hand_leaves", flow=flow)}
    parts = {name: what.partition("/") for name, what in named.items()}
    return {name: Take(step, output) for name, (step, _, output) in parts.items()}


def _pieces(db: Db, one: Source) -> list[Piece]:
    rows = records.files(db, one.task, one.number) if one.output else []
    files = tuple(Artifact(text.load_path(row.name), row.size, row.sha256) for row in rows)
    source = hand.Source(one.item, one.place, one.digest, files)
    return hand.pieces(Take(one.step, one.output), [source], many=False)


def _remove(folder: Path) -> None:
    for one in (folder, folder.with_name(f"{folder.name}.in")):
        shutil.rmtree(one, ignore_errors=True)
    folder.with_name(f"{folder.name}.read").unlink(missing_ok=True)
