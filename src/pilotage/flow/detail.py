"""Tasks of flows with all attempts at them, what those left, and what happened: many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from pilotage.base import text
from pilotage.flow.records import AttemptRow, Line, TaskRow
from pilotage.store import Db

#: Beyond every number.
_FAR = 2**60


class Task(msgspec.Struct, frozen=True):
    """A task and all attempts at it."""

    id: int
    step: str
    item: int
    value: Any
    state: str
    reason: str
    #: The number of the current attempt; 0 before the first.
    attempt: int
    result: Any
    created: float
    started: float | None
    ended: float | None
    attempts: list[AttemptRow]


class Left(NamedTuple):
    """A file that an attempt has left."""

    task: int
    number: int
    name: str
    size: int
    sha256: str


def tasks(
    db: Db, number: int, step: str, *, state: str = "", after: int = -1, most: int = 100
) -> list[Task]:
    """Read tasks of a step, after a place in its list."""
    return _tried(
        db, db.rows("see_tasks", flow=number, step=step, state=state, after=after, most=most)
    )


def all_tasks(db: Db, number: int, most: int) -> list[Task]:
    """Read tasks of all steps, step by step."""
    return _tried(db, db.rows("see_all_tasks", flow=number, most=most))


def _tried(db: Db, rows: Sequence[tuple[Any, ...]]) -> list[Task]:
    found = [TaskRow(*one) for one in rows]
    made: dict[int, list[AttemptRow]] = {}
    for one in db.rows("see_attempts", tasks=text.dump([task.id for task in found])):
        made.setdefault(one[0], []).append(AttemptRow(*one))
    return [
        Task(
            one.id, one.step, one.item, _value(one.value), one.state, one.reason, one.attempt,
            _value(one.result), one.created, one.started, one.ended, made.get(one.id, []),
        )
        for one in found
    ]  # fmt: skip


def _value(body: str) -> Any:  # noqa: ANN401 - any JSON value
    return text.load(body) if body else None


def files(db: Db, tasks: Sequence[int]) -> list[Left]:
    """Read what attempts at tasks have left."""
    return [Left(*one) for one in db.rows("see_files", tasks=text.dump(list(tasks)))]


def story(
    db: Db, number: int, step: str = "", before: int | None = None, most: int = 100
) -> list[Line]:
    """Read what happened to a flow or a step, the newest first."""
    far = _FAR if before is None else before
    found: list[Line] = []
    for one in db.rows("see_story", flow=number, step=step, before=far, most=most):
        line = Line(*one)
        # What a site says of an end, and that it was taken in, is one thing for people.
        if not found or _about(found[-1]) != _about(line):
            found.append(line)
    return found


def _about(line: Line) -> tuple[str, int, int, str]:
    return line.step, line.task, line.number, line.state
