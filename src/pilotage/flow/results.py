"""What attempts have left, as rows: files and results, and what was asked for again."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import msgspec

from pilotage.base import errors, text
from pilotage.edge import message
from pilotage.edge import records as edge
from pilotage.edge.message import HubAddress
from pilotage.flow import definition, moves
from pilotage.flow.ends import MOST_RETURNED_BYTES
from pilotage.flow.model import Artifact, Step, Take
from pilotage.flow.records import AttemptRow
from pilotage.flow.template import line
from pilotage.flow.values import Values
from pilotage.store import Db

_DEEPEST = 32
_SHOWN = 40


class Leaves(msgspec.Struct, frozen=True):
    """What a task is to leave."""

    #: Names below its folder; that of the result is among them.
    outputs: tuple[str, ...] = ()
    result: str = ""


class Kept(msgspec.Struct, frozen=True):
    """What was found of an attempt."""

    digest: str
    files: tuple[Artifact, ...]
    bytes: int
    #: Bytes that it read, where only the hub knows.
    read: int | None = None


def leaves(step: Step) -> Leaves:
    """Say what a step leaves whose templates are filled."""
    outputs = dict.fromkeys(step.outputs)
    if step.result and not any(_within(step.result, one) for one in outputs):
        outputs[step.result] = None
    return Leaves(tuple(outputs), step.result)


def _within(name: str, output: str) -> bool:
    return name == output or not output or (output.endswith("/") and name.startswith(output))


def leaves_of(db: Db, task: int, number: int) -> Leaves:
    """Say what an attempt is to leave."""
    step, look = _of(db, task, number)
    filled = msgspec.structs.replace(
        step, outputs=tuple(line(one, look) for one in step.outputs), result=line(step.result, look)
    )
    return leaves(filled)


def takes_of(db: Db, task: int, number: int) -> list[Take]:
    """Say what an attempt reads of other steps."""
    step, look = _of(db, task, number)
    fill = functools.partial(line, look=look)
    return [
        Take(one.step, fill(one.output), "", fill(one.path), one.sha256)
        for one in step.inputs
        if one.step
    ]


def _of(db: Db, task: int, number: int) -> tuple[Step, Callable[[str], Any]]:
    flow, name, item, value = db.row("flow_hand_attempt_item", task=task) or (0, "", 0, "null")
    head = definition.head(db, flow)
    found = Values(db, head, item=text.load(value), index=item, attempt=number)
    return definition.step(db, flow, name), found.look


def keep(db: Db, attempt: AttemptRow, kept: Kept, result: object) -> None:
    """Write down what an attempt has left; the same again changes nothing."""
    at = {"task": attempt.task, "number": attempt.number}
    rows = [(text.store_path(one.name), one.size, one.sha256) for one in kept.files]
    db.run("flow_hand_forget", **at)
    db.run("flow_hand_files", **at, rows=text.dump(rows))
    db.run(
        "flow_hand_left", **at, digest=kept.digest, files=len(rows), bytes=kept.bytes,
        read=kept.read,
    )  # fmt: skip
    if result is not None:
        moves.result(db, attempt.task, attempt.number, result)


def say(db: Db, task: int, reason: str) -> None:
    """Say why a task whose attempt is over does not go on."""
    db.run("flow_hand_say", task=task, reason=reason)


def parse(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Read a result; raise `BadMessage` for what is no JSON, or too much of it."""
    if len(body) > MOST_RETURNED_BYTES:
        message = f"it has {len(body)} bytes, and {MOST_RETURNED_BYTES} are the most"
        raise errors.BadMessage(message, hint="a result is small; large data is an output")
    try:
        found = json.loads(body, parse_constant=_refuse, parse_float=_float)
    except (ValueError, RecursionError) as error:
        raise errors.BadMessage(f"it is no JSON: {error}") from None
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


# -- what is asked for again -----------------------------------------------------------------------


def ask(
    db: Db, attempt: AttemptRow, reason: str, address: HubAddress, now: float, patience: float
) -> bool:  # fmt: skip
    """Have the data of an attempt sent again by its site, once; say whether there is hope.

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
    """Say whether what an attempt has left was asked for again, and nothing came of it yet."""
    row = db.row("flow_hand_asked", task=attempt.task, number=attempt.number)
    return row is not None and row[1] is None and now - row[0] < patience


def told(db: Db, attempt: AttemptRow, now: float) -> None:
    """Take in that a site has done what was asked, or cannot."""
    db.run("flow_hand_told", task=attempt.task, number=attempt.number, now=now)
