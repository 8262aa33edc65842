"""Outputs of a whole flow: which files they are, and their delivery to the requested address.

A single output goes there as it is; several have a folder each, by their names. The manifest comes
last. Outputs of single tasks are in `task_data`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import posixpath
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from anyio.to_thread import run_sync

from pilotage.base import durable, errors, text
from pilotage.data.transfer.courier import Courier
from pilotage.edge import folders, handoff, reach
from pilotage.edge.handoff import HUB, Artifact, DataStores, InputPiece, Take
from pilotage.edge.reach import Reach
from pilotage.flow import records
from pilotage.flow.records import StepSource
from pilotage.flow.template import Values, line
from pilotage.project import settings
from pilotage.store import Db

#: The link to the folder of the newest run.
LATEST = "latest"


async def deliver(
    here: Reach, stores: DataStores, db: Db, root: Path, scratch: Path, flow: int
) -> None:
    """Deliver the outputs of a flow; what was sent before is not sent again."""
    to, pieces = address(db, flow), outputs(db, flow)
    named = [
        InputPiece(handoff.seen(stores, one.url, HUB), one.path, one.sha256, own=True)
        for one in pieces
    ]
    folder = scratch / f"to-{flow}"
    courier, where = _target(here, root, to)
    try:
        await folders.bring(here, root, named, folder)
        await _send(courier, str(folder), where, again=_runs(db, flow) > 1)
    finally:
        await run_sync(functools.partial(_remove, folder))
    if records.head(db, flow).flow.runs and where.startswith("file:"):
        await run_sync(_point, unquote(where.removeprefix("file://")).rstrip("/"))


async def _send(courier: Courier, folder: str, where: str, *, again: bool) -> None:
    try:
        await courier.send(folder, where, replace=True)
    except errors.Conflict:
        if not again:
            raise
        # It is there from an earlier run of this flow, whose address is the same.
        await courier.send(folder, where, resend=True)


def _point(folder: str) -> None:
    """Point `latest` to the folder of a run, unless it points to a newer one."""
    top, name = os.path.split(folder)
    link = os.path.join(top, LATEST)
    with contextlib.suppress(OSError, ValueError):  # there is none, or a person has made it
        if _run(os.readlink(link)) > _run(name):
            return
    part = os.path.join(top, f".{LATEST}-{name}")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part)
    os.symlink(name, part)
    try:
        durable.rename(part, link)
    except IsADirectoryError:
        # A folder of that name was made by others.
        os.unlink(part)


def _run(name: str) -> tuple[int, ...]:
    """Read the name of a run: the number of its flow, and which run of it."""
    return tuple(map(int, name.split(".")))


def _target(here: Reach, root: Path, to: str) -> tuple[Courier, str]:
    if "://" in to:
        return here.outside, to
    return here.own, reach.own(root, to)


def address(db: Db, flow: int) -> str:
    """Return the address of the outputs; templates are filled, and each run has its own folder."""
    head = records.head(db, flow)
    to = line(head.flow.to, Values(db, head).look)
    if not head.flow.runs:
        return to
    count = _runs(db, flow)
    return f"{to.rstrip('/')}/{flow}{f'.{count}' if count > 1 else ''}/"


def _runs(db: Db, flow: int) -> int:
    """Return how often a flow has ended: its steps may be rerun."""
    return int(db.value("flow_hand_runs", flow=flow))


def outputs(db: Db, flow: int) -> list[InputPiece]:
    """List the outputs; without any in the definition they are those of the last steps."""
    return [
        InputPiece(piece.url, f"{within}/{piece.path}".strip("/"), piece.sha256, own=True)
        for within, one in _sources(db, flow)
        for piece in _some(db, one)
    ]


def _sources(db: Db, flow: int) -> Iterator[tuple[str, StepSource]]:
    """Yield the source of each output, with its folder below the target."""
    named = _named(db, flow)
    for name, take in named.items():
        path = handoff.word(name) if len(named) > 1 else ""
        some = sources(db, flow, take)
        for at, one in enumerate(some):
            yield f"{path}/{at}".lstrip("/") if len(some) > 1 else path, one


def _some(db: Db, one: StepSource) -> list[InputPiece]:
    pieces = _pieces(db, one)
    if one.output and not pieces:
        raise errors.NotFound(f"`{one.step}` has no output `{one.output}`")
    return pieces


def homes(db: Db, flow: int, root: str) -> list[str]:
    """List the output files of a flow that is done: paths, or URLs of those elsewhere.

    A flow whose outputs are sent nowhere has them where its steps have left them.
    """
    to = address(db, flow) if records.head(db, flow).flow.to else ""
    top = to if "://" in to else f"file://{posixpath.join(root, to)}"
    found = []
    for within, one in _sources(db, flow):
        names = [text.load_path(row.name) for row in records.files(db, one.task, one.number)]
        if one.output:
            names = [piece.path for piece in _pieces(db, one)]
        here = settings.at_home(one.place, Path(root) / settings.STATE)
        base = posixpath.join(top, within) if to else unquote(here)
        found += [posixpath.join(base, name) for name in names]
    return [one.removeprefix("file://") for one in found]


def makers(db: Db, flow: int) -> list[StepSource]:
    """List the attempts that made the outputs."""
    return [one for take in _named(db, flow).values() for one in sources(db, flow, take)]


def sources(db: Db, flow: int, take: Take) -> list[StepSource]:
    """List the sources of one output."""
    return [one for one in records.sources(db, flow, take) if one.place]


def _named(db: Db, flow: int) -> dict[str, Take]:
    named = records.head(db, flow).flow.outputs
    if not named:
        named = {str(row[0]): str(row[0]) for row in db.rows("flow_hand_leaves", flow=flow)}
    parts = {name: what.partition("/") for name, what in named.items()}
    return {name: Take(step, output) for name, (step, _, output) in parts.items()}


def _pieces(db: Db, one: StepSource) -> list[InputPiece]:
    rows = records.files(db, one.task, one.number) if one.output else []
    files = tuple(Artifact(text.load_path(row.name), row.size, row.sha256) for row in rows)
    source = handoff.HandoffSource(one.item, one.place, one.digest, files)
    return handoff.pieces(Take(one.step, one.output), [source], many=False)


def _remove(folder: Path) -> None:
    for one in (folder, folder.with_name(f"{folder.name}.in")):
        shutil.rmtree(one, ignore_errors=True)
    folder.with_name(f"{folder.name}.read").unlink(missing_ok=True)
