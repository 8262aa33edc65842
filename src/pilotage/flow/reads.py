"""What a task reads, and who reads what it leaves: found in the rows of its flow."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pilotage.base import text
from pilotage.edge import handoff
from pilotage.edge.handoff import HUB, InputPiece
from pilotage.flow import definition, records
from pilotage.flow.handoff import Order, Unfit
from pilotage.flow.model import Artifact, Take
from pilotage.flow.records import Source
from pilotage.store import Db


def pieces(db: Db, order: Order) -> list[InputPiece]:
    """List what a task reads, in the order in which its step names it."""
    found: list[InputPiece] = []
    for feed in order.inputs:
        take = feed.take
        if not take.step:
            found.append(InputPiece(take.url, take.path, take.sha256))
            continue
        sources = of_item(db, order.flow, order.step, order.item, take, feed.sources)
        some = _of_step(db, order, take, sources)
        if take.output and sources and not some:
            raise Unfit(f"`{take.step}` has left no `{take.output}`")
        found += some
    return found


def of_item(
    db: Db, flow: int, step: str, item: int, take: Take, sources: Sequence[Source]
) -> list[Source]:
    """Return the sources that a task reads among those of its step, if they have left anything."""
    some = [one for one in sources if one.place]
    if _nested(flow, some) or not handoff.pairs(take.step, *_lists(db, flow, take.step, step)):
        return some
    return [one for one in some if one.item == item]


def _nested(flow: int, sources: Sequence[Source]) -> bool:
    return any(one.flow != flow for one in sources)


def _lists(db: Db, flow: int, made: str, read: str) -> tuple[str, str]:
    """Return the lists that two steps go through."""
    found = [db.value("flow_hand_list", flow=flow, step=name) or "" for name in (made, read)]
    return found[0], found[1]


def _of_step(db: Db, order: Order, take: Take, sources: Sequence[Source]) -> list[InputPiece]:
    nested = _nested(order.flow, sources)
    made, read = _lists(db, order.flow, take.step, order.step)
    many = len(sources) > 1 if nested else bool(made) and not handoff.pairs(take.step, made, read)
    found: list[InputPiece] = []
    for at, one in enumerate(sources):
        files = _files(db, one) if one.output else ()
        # What several flows within have left is told apart by its place among all of that.
        source = handoff.HandoffSource(at if nested else one.item, one.place, one.digest, files)
        wanted = msgspec.structs.replace(take, output=one.output)
        found += handoff.pieces(wanted, [source], many=many)
    return found


def _files(db: Db, source: Source) -> tuple[Artifact, ...]:
    rows = records.files(db, source.task, source.number)
    return tuple(Artifact(text.load_path(one.name), one.size, one.sha256) for one in rows)


def readers(db: Db, flow: int, step: str) -> frozenset[str] | None:
    """Return the sites that may read what a step leaves, and `HUB`; nothing if nobody knows."""
    found = {HUB}
    place: tuple[int, str] | None = (flow, step)
    while place is not None:
        some = _after(db, *place)
        if some is None:
            return None
        found |= some
        place = _outside(db, *place)
    return frozenset(found)


def _after(db: Db, flow: int, step: str) -> set[str] | None:
    """Return the sites of the steps of a flow that read from one; nothing if nobody knows."""
    found: set[str] = set()
    for (name,) in db.rows("flow_hand_after", flow=flow, step=step):
        after = definition.step(db, flow, name)
        if not any(take.step == step for take in after.inputs):
            continue
        if after.flow is not None or any("{" in site for site in after.sites):
            return None
        if after.application and not after.sites:
            return None
        if after.application:
            found.update(after.sites)
    return found


def _outside(db: Db, flow: int, step: str) -> tuple[int, str] | None:
    """Return the step that a flow is the inside of, if what a step of it leaves is what that has.

    Whoever comes after that one reads it, too.
    """
    head = definition.head(db, flow)
    outputs = {one.partition("/")[0] for one in head.flow.outputs.values()}
    if head.parent is None or step not in outputs:
        return None
    task = records.task(db, head.parent)
    return task.flow, task.step
