"""Inputs of tasks and outputs of attempts, as rows of the store.

The outputs of a whole flow are in `flow_outputs`.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import msgspec

from pilotage.base import errors, text
from pilotage.edge import handoff, message
from pilotage.edge import records as edge
from pilotage.edge.handoff import HUB, Artifact, InputPiece, Take
from pilotage.edge.message import HubIdentity
from pilotage.flow import moves, records
from pilotage.flow.model import Step
from pilotage.flow.moves import MOST_RETURNED_BYTES
from pilotage.flow.orders import PlacedOrder, Unfit
from pilotage.flow.records import AttemptRow, StepSource
from pilotage.flow.template import Values, line
from pilotage.store import Db

_DEEPEST = 32
_SHOWN = 40


class ExpectedOutputs(msgspec.Struct, frozen=True):
    """The outputs that a task must leave."""

    #: Names below its folder; that of the result is among them.
    outputs: tuple[str, ...] = ()
    result: str = ""


class FoundOutputs(msgspec.Struct, frozen=True):
    """The outputs that were found of an attempt."""

    digest: str
    files: tuple[Artifact, ...]
    bytes: int
    #: Bytes that it read, where only the hub knows.
    read: int | None = None


def leaves(step: Step) -> ExpectedOutputs:
    """Return the outputs of a step whose templates are filled."""
    outputs = dict.fromkeys(step.outputs)
    if step.result and not any(_within(step.result, one) for one in outputs):
        outputs[step.result] = None
    return ExpectedOutputs(tuple(outputs), step.result)


def _within(name: str, output: str) -> bool:
    return name == output or not output or (output.endswith("/") and name.startswith(output))


def leaves_of(db: Db, task: int, number: int) -> ExpectedOutputs:
    """Return the outputs that an attempt must leave."""
    step, look = _of(db, task, number)
    filled = msgspec.structs.replace(
        step, outputs=tuple(line(one, look) for one in step.outputs), result=line(step.result, look)
    )
    return leaves(filled)


def takes_of(db: Db, task: int, number: int) -> list[Take]:
    """Return the inputs of an attempt from other steps."""
    step, look = _of(db, task, number)
    fill = functools.partial(line, look=look)
    return [
        Take(one.step, fill(one.output), "", fill(one.path), one.sha256)
        for one in step.inputs
        if one.step
    ]


def _of(db: Db, task: int, number: int) -> tuple[Step, Callable[[str], Any]]:
    flow, name, item, value = db.row("flow_hand_attempt_item", task=task) or (0, "", 0, "null")
    head = records.head(db, flow)
    found = Values(db, head, item=text.load(value), index=item, attempt=number)
    return records.step(db, flow, name), found.look


def keep(db: Db, attempt: AttemptRow, kept: FoundOutputs, result: object) -> None:
    """Record the outputs of an attempt; idempotent."""
    at = {"task": attempt.task, "number": attempt.number}
    rows = [(text.store_path(one.name), one.size, one.sha256) for one in kept.files]
    db.run("flow_hand_forget", **at)
    db.run("flow_hand_files", **at, rows=text.dump(rows))
    db.run(
        "flow_hand_left", **at, digest=kept.digest, files=len(rows), bytes=kept.bytes,
        read=kept.read,
    )  # fmt: skip
    if result is not None:
        moves.set_result(db, attempt.task, attempt.number, result)


def say(db: Db, task: int, reason: str) -> None:
    """Set the reason of a task whose attempt is over and not processed."""
    db.run("flow_hand_say", task=task, reason=reason)


def parse(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Read a result; raise `BadMessage` for what is no JSON, or too much of it."""
    if len(body) > MOST_RETURNED_BYTES:
        message = f"it has {len(body)} bytes; the limit is {MOST_RETURNED_BYTES}"
        raise errors.BadMessage(message, hint="a result is small; large data is an output")
    try:
        found = json.loads(body, parse_constant=_refuse, parse_float=_float)
    except (ValueError, RecursionError) as error:
        raise errors.BadMessage(f"it is not JSON: {error}") from None
    if _depth(found) > _DEEPEST:
        raise errors.BadMessage(f"it is more than {_DEEPEST} deep")
    return found


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _float(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse(digits[:_SHOWN])


def _depth(value: object) -> int:
    deep, level = 0, [value]
    while level and deep <= _DEEPEST:
        deep += 1
        level = [inner for one in level for inner in _inner(one)]
    return deep


def _inner(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


# -- outputs that a site is asked to send again ----------------------------------------------------


def ask(
    db: Db, attempt: AttemptRow, reason: str, address: HubIdentity, now: float, patience: float
) -> bool:  # fmt: skip
    """Ask a site once to send the outputs of an attempt again; return whether they may come.

    There is none once the site has answered, or has been silent for too long.
    """
    at = {"task": attempt.task, "number": attempt.number}
    row = db.row("flow_hand_asked", **at)
    if row is not None:
        asked, told = row
        return told is None and now - asked < patience
    db.run("flow_hand_ask", **at, reason=reason, now=now)
    key, number = attempt.key, 0
    if attempt.job is not None:
        key, number = db.row("edge_attempt_last", job=attempt.job) or (key, 0)
    topic, body = message.control("resend", attempt.site, [key], address, reason)
    edge.put(db, topic, body, (attempt.job or 0, number) if number else (0, 0))
    return True


def waits(db: Db, attempt: AttemptRow, now: float, patience: float) -> bool:
    """Return whether outputs of an attempt were requested again, without an answer yet."""
    row = db.row("flow_hand_asked", task=attempt.task, number=attempt.number)
    return row is not None and row[1] is None and now - row[0] < patience


def told(db: Db, attempt: AttemptRow, now: float) -> None:
    """Record that a site has sent outputs again, or cannot."""
    db.run("flow_hand_told", task=attempt.task, number=attempt.number, now=now)


def pieces(db: Db, order: PlacedOrder) -> list[InputPiece]:
    """List the inputs of a task, in the order of its step."""
    found: list[InputPiece] = []
    for feed in order.inputs:
        take = feed.take
        if not take.step:
            found.append(InputPiece(take.url, take.path, take.sha256))
            continue
        sources = of_item(db, order.flow, order.step, order.item, take, feed.sources)
        some = _of_step(db, order, take, sources)
        if take.output and sources and not some:
            raise Unfit(f"`{take.step}` has no output `{take.output}`")
        found += some
    return found


def of_item(
    db: Db, flow: int, step: str, item: int, take: Take, sources: Sequence[StepSource]
) -> list[StepSource]:
    """Return the sources that a task reads among those of its step, if they have outputs."""
    some = [one for one in sources if one.place]
    if _nested(flow, some) or not handoff.pairs(take.step, *_lists(db, flow, take.step, step)):
        return some
    return [one for one in some if one.item == item]


def _nested(flow: int, sources: Sequence[StepSource]) -> bool:
    return any(one.flow != flow for one in sources)


def _lists(db: Db, flow: int, made: str, read: str) -> tuple[str, str]:
    """Return the lists of two steps."""
    found = [db.value("flow_hand_list", flow=flow, step=name) or "" for name in (made, read)]
    return found[0], found[1]


def _of_step(
    db: Db, order: PlacedOrder, take: Take, sources: Sequence[StepSource]
) -> list[InputPiece]:
    nested = _nested(order.flow, sources)
    made, read = _lists(db, order.flow, take.step, order.step)
    many = len(sources) > 1 if nested else bool(made) and not handoff.pairs(take.step, made, read)
    found: list[InputPiece] = []
    for at, one in enumerate(sources):
        files = _files(db, one) if one.output else ()
        # Outputs of several flows within are told apart by their index.
        source = handoff.HandoffSource(at if nested else one.item, one.place, one.digest, files)
        wanted = msgspec.structs.replace(take, output=one.output)
        found += handoff.pieces(wanted, [source], many=many)
    return found


def _files(db: Db, source: StepSource) -> tuple[Artifact, ...]:
    rows = records.files(db, source.task, source.number)
    return tuple(Artifact(text.load_path(one.name), one.size, one.sha256) for one in rows)


def readers(db: Db, flow: int, step: str) -> frozenset[str] | None:
    """Return the sites that may read the outputs of a step, and `HUB`; nothing if unknown."""
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
    """Return the sites of the steps of a flow that read from one; nothing if unknown."""
    found: set[str] = set()
    for (name,) in db.rows("flow_hand_after", flow=flow, step=step):
        after = records.step(db, flow, name)
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

    The steps after that one read it, too.
    """
    head = records.head(db, flow)
    outputs = {one.partition("/")[0] for one in head.flow.outputs.values()}
    if head.parent is None or step not in outputs:
        return None
    task = records.task(db, head.parent)
    return task.flow, task.step
