"""Flows in the store, for those who look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pilotage.base import errors, text
from pilotage.edge.handoff import Artifact, Take
from pilotage.flow import definition as definitions
from pilotage.flow.model import Flow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pilotage.store import Db

_T = TypeVar("_T", bound=msgspec.Struct)


class FlowRow(msgspec.Struct, frozen=True):
    """A flow, as far as it has come."""

    id: int
    key: str
    digest: str
    name: str
    owner: str
    tag: str
    source: str
    #: The task that it is the inside of.
    parent: int | None
    state: str
    reason: str
    #: Steps that are not over, and steps whose failure makes it fail.
    open: int
    failed: int
    #: How often its tasks may still be tried again.
    budget: int
    seq: int
    created: float
    ended: float | None
    cleared: float | None


class StepRow(msgspec.Struct, frozen=True):
    """A step, as far as it has come."""

    name: str
    place: int
    state: str
    reason: str
    #: Steps before it that are not over.
    unmet: int
    #: Its tasks: all, those that are not over, those that failed, those that were called off.
    total: int
    open: int
    failed: int
    off: int
    started: float | None
    ended: float | None


class TaskRow(msgspec.Struct, frozen=True):
    """A task, as far as it has come."""

    id: int
    flow: int
    step: str
    item: int
    #: As JSON.
    value: str
    state: str
    reason: str
    #: The number of the current attempt; 0 before the first.
    attempt: int
    retries: int
    not_before: float
    #: As JSON; '' if nothing.
    result: str
    created: float
    started: float | None
    ended: float | None


class AttemptRow(msgspec.Struct, frozen=True):
    """An attempt, as far as it has come."""

    task: int
    number: int
    flow: int
    way: str
    site: str
    key: str
    job: int | None
    state: str
    reason: str
    kind: str
    code: str
    seq: int
    fenced: int
    #: 0, 1 if it is to be called off, more once that was said.
    cancel: int
    heard: float | None
    created: float
    started: float | None
    ended: float | None
    place: str
    digest: str
    files: int
    bytes: int
    read: int


class Line(msgspec.Struct, frozen=True):
    """A line in the story of a flow."""

    id: int
    time: float
    flow: int
    #: Empty if it is on the flow as a whole.
    step: str
    #: 0 if it is on the step as a whole.
    task: int
    number: int
    state: str
    words: str


class Source(msgspec.Struct, frozen=True):
    """Where data comes from: what one attempt has left, or one name of it."""

    flow: int
    step: str
    task: int
    item: int
    number: int
    way: str
    site: str
    #: The folder as readers name it, and the digest of its manifest.
    place: str
    digest: str
    #: One output; empty means all.
    output: str


def flows(
    db: Db, *, states: Iterable[str] = (), owner: str = "", tag: str = "", name: str = "*",
    within: bool = False, before: int = 2**62, most: int = 100,
) -> list[FlowRow]:  # fmt: skip
    """Read flows, the newest first; `within` adds those that are steps of others."""
    rows = db.rows(
        "flow_list", states=text.dump(list(states)), owner=owner, tag=tag, name=name,
        within=int(within), before=before, most=most,
    )  # fmt: skip
    return _all(FlowRow, rows)


def flow(db: Db, number: int) -> FlowRow:
    """Read one flow."""
    row = db.row("flow_get", flow=number)
    if row is None:
        message = f"there is no flow {number}"
        raise errors.NotFound(message, hint="`pilotage flow ls` lists the flows")
    return FlowRow(*row)


def definition(db: Db, number: int) -> Flow:
    """Read what was asked for, whole."""
    body = db.value("flow_body", flow=number)
    if body is None:
        message = f"there is no flow {number}"
        raise errors.NotFound(message, hint="`pilotage flow ls` lists the flows")
    return msgspec.convert(text.load(body), Flow)


def steps(db: Db, number: int) -> list[StepRow]:
    """Read the steps of a flow, in the order of the definition."""
    return _all(StepRow, db.rows("flow_steps", flow=number))


def tasks(
    db: Db, number: int, *, step: str = "", states: Iterable[str] = (), after: int = 0,
    most: int = 2**62,
) -> list[TaskRow]:  # fmt: skip
    """Read tasks of a flow."""
    rows = db.rows(
        "flow_tasks", flow=number, step=step, states=text.dump(list(states)), after=after, most=most
    )
    return _all(TaskRow, rows)


def task(db: Db, number: int) -> TaskRow:
    """Read one task."""
    row = db.row("flow_task_get", task=number)
    if row is None:
        message = f"there is no task {number}"
        raise errors.NotFound(message, hint="`pilotage flow show FLOW` lists the tasks of a flow")
    return TaskRow(*row)


def attempts(db: Db, number: int) -> list[AttemptRow]:
    """Read all attempts of a task."""
    return _all(AttemptRow, db.rows("flow_attempts", task=number))


def attempt(db: Db, number: int, which: int) -> AttemptRow | None:
    """Read one attempt of a task."""
    row = db.row("flow_attempt_get", task=number, number=which)
    return None if row is None else AttemptRow(*row)


def by_key(db: Db, key: str) -> AttemptRow | None:
    """Read the attempt that a site knows by a key."""
    row = db.row("flow_attempt_by_key", key=key)
    return None if row is None else AttemptRow(*row)


def by_job(db: Db, job: int) -> AttemptRow | None:
    """Read the attempt that a job is."""
    row = db.row("flow_attempt_by_job", job=job)
    return None if row is None else AttemptRow(*row)


def by_site_key(db: Db, key: str) -> AttemptRow | None:
    """Read the attempt that a site with an agent knows by a key: that of its job, or its own."""
    row = db.row("flow_attempt_by_site_key", key=key)
    return by_key(db, key) if row is None else by_job(db, row[0])


def over(db: Db, most: int = 1000) -> list[AttemptRow]:
    """Read attempts that are over by what their sites say, and that nobody has taken in."""
    return _all(AttemptRow, db.rows("flow_attempts_over", most=most))


def called_off(db: Db, most: int = 1000) -> list[AttemptRow]:
    """Read attempts that are to be called off, and whose sites were not told."""
    return _all(AttemptRow, db.rows("flow_attempts_off", most=most))


def queued(db: Db, now: float, most: int = 1000) -> list[int]:
    """Return tasks whose time has come, the oldest first."""
    return [row[0] for row in db.rows("flow_tasks_queued", now=now, most=most)]


def edges(db: Db, number: int) -> list[tuple[str, str]]:
    """Read which step waits for which, as pairs of before and after."""
    return [(before, after) for before, after in db.rows("flow_edges", flow=number)]


def files(db: Db, number: int, which: int) -> list[Artifact]:
    """Read which files an attempt has left."""
    return _all(Artifact, db.rows("flow_files", task=number, number=which))


def sources(db: Db, number: int, take: Take) -> list[Source]:
    """Return what a step reads of another: one source for each task of that which is done.

    Of a step that is a flow of its own these are the sources of that flow's outputs; `take.output`
    names one of those.
    """
    found: list[Source] = []
    for task, item, which, way, site, place, digest in db.rows(
        "flow_sources", flow=number, step=take.step
    ):
        if way != "flow":
            found.append(
                Source(number, take.step, task, item, which, way, site, place, digest, take.output)
            )
            continue
        key = f"flow.{number}.{task}.{which}"
        child = db.value("flow_by_key", key=key)
        outputs = definitions.head(db, child).flow.outputs
        for name, what in outputs.items():
            if take.output in ("", name):
                step, _, output = what.partition("/")
                found += sources(db, child, Take(step=step, output=output))
    return found


def _all(kind: type[_T], rows: list[tuple[Any, ...]]) -> list[_T]:
    return [kind(*row) for row in rows]
