"""Flows, steps, tasks and attempts as the store has them."""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from pilotage.base import errors, text
from pilotage.edge.handoff import Artifact, Take
from pilotage.event import records as event_records
from pilotage.flow.model import Flow, Step
from pilotage.store import Db


class FlowHead(msgspec.Struct, frozen=True):
    """A flow without its steps."""

    id: int
    flow: Flow
    state: str
    name: str
    owner: str
    tag: str
    parent: int | None


@functools.lru_cache(maxsize=1024)
def read_head(body: str) -> Flow:
    """Read the definition of a flow without its steps; cached for its tasks."""
    return msgspec.convert(text.load(body), Flow)


@functools.lru_cache(maxsize=4096)
def read_step(body: str) -> Step:
    """Read the definition of a step; all its tasks share one."""
    return msgspec.convert(text.load(body), Step)


def digest(body: str) -> str:
    """Return the digest of a definition."""
    return hashlib.sha256(body.encode()).hexdigest()


def split(flow: Flow) -> tuple[str, list[list[Any]]]:
    """Return the head of a flow as JSON, and `[name, unmet, body, list]` of each step."""
    rows: list[list[Any]] = []
    for name, step in flow.steps.items():
        goes = "" if step.each is None else text.dump(step.each)
        body = text.dump(msgspec.structs.replace(step, each=None))
        rows.append([name, len(step.needs), body, goes])
    return text.dump(msgspec.structs.replace(flow, steps={})), rows


def head(db: Db, flow: int) -> FlowHead:
    """Read a flow without its steps."""
    row = db.row("flow_head", flow=flow)
    if row is None:
        message = f"there is no flow {flow}"
        raise errors.NotFound(message, hint="`pilotage flow ls` lists the flows")
    return FlowHead(flow, read_head(row[0]), *row[1:])


def step(db: Db, flow: int, name: str) -> Step:
    """Read a step, without its list."""
    body = db.value("flow_step_body", flow=flow, step=name)
    if body is None:
        message = f"flow {flow} has no step `{name}`"
        raise errors.NotFound(message, hint=f"`pilotage flow show {flow}` lists its steps")
    return read_step(body)


#: The cursor that keeps the name of this hub.
_HUB = "flows hub"
_T = TypeVar("_T", bound=msgspec.Struct)


class FlowRow(msgspec.Struct, frozen=True):
    """A flow with its state."""

    id: int
    key: str
    digest: str
    name: str
    owner: str
    tag: str
    source: str
    #: The task that it belongs to, if it is a flow within another.
    parent: int | None
    state: str
    reason: str
    #: Steps that are not over, and steps whose failure makes it fail.
    open: int
    failed: int
    #: Retries that are left.
    budget: int
    seq: int
    created: float
    ended: float | None
    cleared: float | None


class StepRow(msgspec.Struct, frozen=True):
    """A step with its state."""

    name: str
    place: int
    state: str
    reason: str
    #: Steps before it that are not over.
    unmet: int
    #: Its tasks: all, those that are not over, those that failed, those that were cancelled.
    total: int
    open: int
    failed: int
    off: int
    started: float | None
    ended: float | None


class TaskRow(msgspec.Struct, frozen=True):
    """A task with its state."""

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
    """An attempt with its state."""

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
    #: 0, 1 if it is to be cancelled, more once its site knows.
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


class StoryLine(msgspec.Struct, frozen=True):
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


class StepSource(msgspec.Struct, frozen=True):
    """The outputs of one attempt, or one of them."""

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
    """Read the whole definition."""
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
    """Read the attempt of a job."""
    row = db.row("flow_attempt_by_job", job=job)
    return None if row is None else AttemptRow(*row)


def by_site_key(db: Db, key: str) -> AttemptRow | None:
    """Read the attempt that a site with an agent knows by a key: that of its job, or its own."""
    row = db.row("flow_attempt_by_site_key", key=key)
    return by_key(db, key) if row is None else by_job(db, row[0])


def over(db: Db, most: int = 1000) -> list[AttemptRow]:
    """Read attempts whose sites report the end, which is not processed yet."""
    return _all(AttemptRow, db.rows("flow_attempts_over", most=most))


def called_off(db: Db, most: int = 1000) -> list[AttemptRow]:
    """Read attempts to cancel whose sites do not know yet."""
    return _all(AttemptRow, db.rows("flow_attempts_off", most=most))


def queued(db: Db, now: float, most: int = 1000) -> list[int]:
    """Return tasks that are due, the oldest first."""
    return [row[0] for row in db.rows("flow_tasks_queued", now=now, most=most)]


def edges(db: Db, number: int) -> list[tuple[str, str]]:
    """Read which step waits for which, as pairs of before and after."""
    return [(before, after) for before, after in db.rows("flow_edges", flow=number)]


def files(db: Db, number: int, which: int) -> list[Artifact]:
    """Read the output files of an attempt."""
    return _all(Artifact, db.rows("flow_files", task=number, number=which))


def sources(db: Db, number: int, take: Take) -> list[StepSource]:
    """Return what a step reads of another: one source for each task that is done.

    Of a step that is a flow of its own these are the sources of that flow's outputs; `take.output`
    names one of those.
    """
    found: list[StepSource] = []
    for task, item, which, way, site, place, digest in db.rows(
        "flow_sources", flow=number, step=take.step
    ):
        if way != "flow":
            found.append(
                StepSource(
                    number, take.step, task, item, which, way, site, place, digest, take.output
                )
            )
            continue
        key = f"flow.{number}.{task}.{which}"
        child = db.value("flow_by_key", key=key)
        outputs = head(db, child).flow.outputs
        for name, what in outputs.items():
            if take.output in ("", name):
                step, _, output = what.partition("/")
                found += sources(db, child, Take(step=step, output=output))
    return found


def _all(kind: type[_T], rows: list[tuple[Any, ...]]) -> list[_T]:
    return [kind(*row) for row in rows]


def hub_name(db: Db) -> str:
    """Return the name of this hub for sites; empty if it has none yet."""
    return event_records.cursor(db, _HUB) or ""


def own_name(db: Db) -> str:
    """Return the name by which sites tell this hub from others, made at first use.

    It lives as long as the store.
    """
    found = event_records.cursor(db, _HUB)
    if found is None:
        found = secrets.token_hex(4)
        event_records.advance(db, _HUB, found)
    return found


#: Flows deleted in one transaction: one may have very many tasks.
_AT_ONCE = 10


def forget(db: Db, before: float) -> list[str] | None:
    """Delete some flows that ended before a time, with those within them; keep their keys.

    Nothing is returned when no such flow is left, else the files to remove: there are none.
    """
    found = [row[0] for row in db.rows("flow_forgettable", before=before, most=_AT_ONCE)]
    if not found:
        return None
    db.run("flow_keys_keep", ids=text.dump(found))
    ids = text.dump([row[0] for row in db.rows("flow_inside", ids=text.dump(found))])
    for query in (
        "flow_files_drop", "flow_resends_drop", "flow_attempts_drop", "flow_tasks_drop",
        "flow_edges_drop", "flow_specs_drop", "flow_steps_drop", "flow_texts_drop",
        "flow_journal_drop", "flow_outbox_drop", "flow_drop",
    ):  # fmt: skip
        db.run(query, ids=ids)
    return []
