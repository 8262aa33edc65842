"""Flows, their steps and tasks as commands, the page and reports see them; read-only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from pilotage.base import text
from pilotage.flow import records
from pilotage.flow.model import FINAL, Flow, Step
from pilotage.flow.records import AttemptRow, FlowRow, StoryLine, TaskRow
from pilotage.store import Db

#: Beyond every number.
_FAR = 2**60
#: The most open tasks that are read.
_OPEN = 2000
#: Where jobs of the hub itself run, in tables and pictures.
HERE = "here"


class FlowSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A flow in a list."""

    id: int
    name: str
    owner: str
    tag: str
    #: Where it came from: `command`, `message`, `api` or `flow`.
    source: str
    #: The task that it belongs to, if it is a flow within another.
    parent: int | None
    state: str
    reason: str
    #: Retries that are left.
    budget: int
    created: float
    ended: float | None
    #: When its data was removed.
    cleared: float | None
    #: Steps by state.
    steps: dict[str, int] = {}


class SiteWork(NamedTuple):
    """The work done for a step at a site."""

    site: str
    way: str
    attempts: int
    live: int
    files: int
    bytes: int
    read: int


class StepSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A step and its progress."""

    name: str
    place: int
    state: str
    reason: str
    #: Its tasks: all, those that are not over, those that failed, and how many are in which state.
    total: int
    open: int
    failed: int
    tasks: dict[str, int]
    started: float | None
    ended: float | None
    #: What it waits for.
    needs: list[str]
    #: Sites of its attempts, else those where it may run.
    sites: list[str]
    #: The name of what runs.
    runs: str
    #: Whether it goes through a list.
    each: bool
    attempts: int
    #: Files and bytes that it left, and bytes that it read.
    files: int
    bytes: int
    read: int
    #: Why it does not progress.
    why: str = ""

    @property
    def done(self) -> int:
        """How many of its tasks are over."""
        return self.total - self.open

    def seconds(self, now: float) -> float | None:
        """How long it took, or has taken so far."""
        return None if self.started is None else max(0.0, (self.ended or now) - self.started)


class OpenTask(NamedTuple):
    """A task that is not over, and its current attempt if it has one."""

    step: str
    item: int
    state: str
    reason: str
    not_before: float
    way: str | None
    site: str | None
    job: int | None
    #: Of the attempt.
    stage: str | None
    words: str | None
    sent: float | None
    heard: float | None
    created: float | None


class FlowSheet(NamedTuple):
    """A flow, and all of its steps."""

    row: FlowSummary
    flow: Flow
    steps: list[StepSummary]
    works: dict[str, list[SiteWork]]
    open: list[OpenTask]


def rows(
    db: Db, *, states: Sequence[str] = (), name: str = "", owner: str = "", tag: str = "",
    within: bool = False, before: int | None = None, most: int = 100,
) -> list[FlowSummary]:  # fmt: skip
    """List flows, the newest first."""
    far = _FAR if before is None else before
    found = records.flows(
        db, states=states, owner=owner, tag=tag, name=name or "*", within=within, before=far,
        most=most,
    )  # fmt: skip
    return _counted(db, found)


def some(db: Db, numbers: Iterable[int]) -> list[FlowSummary]:
    """Read flows by their numbers; those that are not there are left out."""
    found = db.rows("see_some_flows", flows=text.dump(list(numbers)))
    return _counted(db, [FlowRow(*one) for one in found])


def row(db: Db, number: int) -> FlowSummary:
    """Read a flow."""
    return _counted(db, [records.flow(db, number)])[0]


def last(db: Db, name: str = "") -> int:
    """Find the newest flow of a name, or of all; 0 if there is none."""
    return int(db.value("see_last_flow", name=name))


def _counted(db: Db, found: Sequence[FlowRow]) -> list[FlowSummary]:
    counts: dict[int, dict[str, int]] = {}
    numbers = text.dump([one.id for one in found])
    for flow, state, count in db.rows("see_flow_counts", flows=numbers):
        counts.setdefault(flow, {})[state] = count
    return [
        FlowSummary(**{name: getattr(one, name) for name in _SAME}, steps=counts.get(one.id, {}))
        for one in found
    ]


_SAME = tuple(name for name in FlowSummary.__struct_fields__ if name != "steps")


def sheet(db: Db, number: int) -> FlowSheet:
    """Read a flow with all of its steps."""
    head = row(db, number)
    flow = records.definition(db, number)
    works: dict[str, list[SiteWork]] = {}
    for step, *facts in db.rows("see_work", flow=number):
        works.setdefault(step, []).append(SiteWork(*facts[:-1]))
    tasks: dict[str, dict[str, int]] = {}
    for step, state, count in db.rows("see_task_counts", flow=number):
        tasks.setdefault(step, {})[state] = count
    needs: dict[str, list[str]] = {}
    for step, following in records.edges(db, number):
        needs.setdefault(following, []).append(step)
    steps = []
    for each in records.steps(db, number):
        asked = flow.steps.get(each.name, Step())
        done = works.get(each.name, [])
        steps.append(
            StepSummary(
                name=each.name, place=each.place, state=each.state, reason=each.reason,
                total=each.total, open=each.open, failed=each.failed,
                tasks=tasks.get(each.name, {}), started=each.started, ended=each.ended,
                needs=needs.get(each.name, []), sites=sites(asked, done), runs=runs(asked),
                each=asked.each is not None, attempts=sum(one.attempts for one in done),
                files=sum(one.files for one in done), bytes=sum(one.bytes for one in done),
                read=sum(one.read for one in done),
            )
        )  # fmt: skip
    return FlowSheet(head, flow, steps, works, open_tasks(db, number))


def sites(asked: Step, done: Sequence[SiteWork]) -> list[str]:
    """Return the sites of the attempts of a step, the last first; else where it may run."""
    if done:
        return list(dict.fromkeys(place(each.way, each.site) for each in reversed(done)))
    return list(asked.sites)


def place(way: str | None, site: str | None) -> str:
    """Return the name of the place of an attempt."""
    return site or ("a flow within" if way == "flow" else HERE)


def runs(asked: Step) -> str:
    """Return the name of what a step runs."""
    if asked.application:
        return asked.application
    if asked.flow is not None:
        return f"flow {asked.flow.name}"
    recipe = asked.recipe
    argv = recipe.get("argv")
    if isinstance(argv, (list, tuple)) and argv:
        return str(argv[0]).rsplit("/", 1)[-1]
    return str(recipe.get("app") or recipe.get("file") or recipe.get("kind") or "")


def open_tasks(db: Db, number: int, step: str = "") -> list[OpenTask]:
    """Read tasks that are not over."""
    return [OpenTask(*one) for one in db.rows("see_open_tasks", flow=number, step=step, most=_OPEN)]


def over(state: str) -> bool:
    """Return whether a state is final."""
    return state in FINAL


#: Beyond every number.


class TaskDetail(msgspec.Struct, frozen=True):
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


class OutputFile(NamedTuple):
    """An output file of an attempt."""

    task: int
    number: int
    name: str
    size: int
    sha256: str


def tasks(
    db: Db, number: int, step: str, *, state: str = "", after: int = -1, most: int = 100
) -> list[TaskDetail]:
    """Read tasks of a step, after a place in its list."""
    return _tried(
        db, db.rows("see_tasks", flow=number, step=step, state=state, after=after, most=most)
    )


def all_tasks(db: Db, number: int, most: int) -> list[TaskDetail]:
    """Read tasks of all steps, step by step."""
    return _tried(db, db.rows("see_all_tasks", flow=number, most=most))


def _tried(db: Db, rows: Sequence[tuple[Any, ...]]) -> list[TaskDetail]:
    found = [TaskRow(*one) for one in rows]
    made: dict[int, list[AttemptRow]] = {}
    for one in db.rows("see_attempts", tasks=text.dump([task.id for task in found])):
        made.setdefault(one[0], []).append(AttemptRow(*one))
    return [
        TaskDetail(
            one.id, one.step, one.item, _value(one.value), one.state, one.reason, one.attempt,
            _value(one.result), one.created, one.started, one.ended, made.get(one.id, []),
        )
        for one in found
    ]  # fmt: skip


def _value(body: str) -> Any:  # noqa: ANN401 - any JSON value
    return text.load(body) if body else None


def files(db: Db, tasks: Sequence[int]) -> list[OutputFile]:
    """Read the output files of attempts."""
    return [OutputFile(*one) for one in db.rows("see_files", tasks=text.dump(list(tasks)))]


def story(
    db: Db, number: int, step: str = "", before: int | None = None, most: int = 100
) -> list[StoryLine]:
    """Read what happened to a flow or a step, the newest first."""
    far = _FAR if before is None else before
    found: list[StoryLine] = []
    for one in db.rows("see_story", flow=number, step=step, before=far, most=most):
        line = StoryLine(*one)
        # The report of an end and its processing are shown as one.
        if not found or _about(found[-1]) != _about(line):
            found.append(line)
    return found


def _about(line: StoryLine) -> tuple[str, int, int, str]:
    return line.step, line.task, line.number, line.state
