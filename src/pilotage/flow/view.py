"""Flows as commands, the page and reports see them: read from the store, nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from pilotage.base import text
from pilotage.flow import records
from pilotage.flow.model import FINAL, Flow, Step
from pilotage.flow.records import FlowRow
from pilotage.store import Db

#: Beyond every number.
_FAR = 2**60
#: Tasks that are not over of which the reasons are looked at.
_OPEN = 2000
#: Where jobs of the hub itself run, in tables and pictures.
HERE = "here"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A flow in a list."""

    id: int
    name: str
    owner: str
    tag: str
    #: Where it came from: `command`, `message`, `api` or `flow`.
    source: str
    #: The task that it is the inside of.
    parent: int | None
    state: str
    reason: str
    #: How often its tasks may still be tried again.
    budget: int
    created: float
    ended: float | None
    #: When its data was cleared away.
    cleared: float | None
    #: Steps by state.
    steps: dict[str, int] = {}


class Work(NamedTuple):
    """What was done for a step at a site."""

    site: str
    way: str
    attempts: int
    live: int
    files: int
    bytes: int
    read: int


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A step, and how far it is."""

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
    #: Where it was tried, else where it may run.
    sites: list[str]
    #: What runs, in a word.
    runs: str
    #: Whether it goes through a list.
    each: bool
    attempts: int
    #: Files and bytes that it left, and bytes that it read.
    files: int
    bytes: int
    read: int
    #: Why it does not go on, in words.
    why: str = ""

    @property
    def done(self) -> int:
        """How many of its tasks are over."""
        return self.total - self.open

    def seconds(self, now: float) -> float | None:
        """How long it took, or has taken so far."""
        return None if self.started is None else max(0.0, (self.ended or now) - self.started)


class Open(NamedTuple):
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


class Sheet(NamedTuple):
    """A flow, and all of its steps."""

    row: Row
    flow: Flow
    steps: list[StepRow]
    works: dict[str, list[Work]]
    open: list[Open]


def rows(
    db: Db, *, states: Sequence[str] = (), name: str = "", owner: str = "", tag: str = "",
    within: bool = False, before: int | None = None, most: int = 100,
) -> list[Row]:  # fmt: skip
    """List flows, the newest first."""
    far = _FAR if before is None else before
    found = records.flows(
        db, states=states, owner=owner, tag=tag, name=name or "*", within=within, before=far,
        most=most,
    )  # fmt: skip
    return _counted(db, found)


def some(db: Db, numbers: Iterable[int]) -> list[Row]:
    """Read flows by their numbers; those that are not there are left out."""
    found = db.rows("see_some_flows", flows=text.dump(list(numbers)))
    return _counted(db, [FlowRow(*one) for one in found])


def row(db: Db, number: int) -> Row:
    """Read a flow."""
    return _counted(db, [records.flow(db, number)])[0]


def last(db: Db, name: str = "") -> int:
    """Find the newest flow of a name, or of all; 0 if there is none."""
    return int(db.value("see_last_flow", name=name))


def _counted(db: Db, found: Sequence[FlowRow]) -> list[Row]:
    counts: dict[int, dict[str, int]] = {}
    numbers = text.dump([one.id for one in found])
    for flow, state, count in db.rows("see_flow_counts", flows=numbers):
        counts.setdefault(flow, {})[state] = count
    return [
        Row(**{name: getattr(one, name) for name in _SAME}, steps=counts.get(one.id, {}))
        for one in found
    ]


_SAME = tuple(name for name in Row.__struct_fields__ if name != "steps")


def sheet(db: Db, number: int) -> Sheet:
    """Read a flow with all of its steps."""
    head = row(db, number)
    flow = records.definition(db, number)
    works: dict[str, list[Work]] = {}
    for step, *facts in db.rows("see_work", flow=number):
        works.setdefault(step, []).append(Work(*facts[:-1]))
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
            StepRow(
                name=each.name, place=each.place, state=each.state, reason=each.reason,
                total=each.total, open=each.open, failed=each.failed,
                tasks=tasks.get(each.name, {}), started=each.started, ended=each.ended,
                needs=needs.get(each.name, []), sites=sites(asked, done), runs=runs(asked),
                each=asked.each is not None, attempts=sum(one.attempts for one in done),
                files=sum(one.files for one in done), bytes=sum(one.bytes for one in done),
                read=sum(one.read for one in done),
            )
        )  # fmt: skip
    return Sheet(head, flow, steps, works, open_tasks(db, number))


def sites(asked: Step, done: Sequence[Work]) -> list[str]:
    """Say where a step was tried, the last site first; else where it may run."""
    if done:
        return list(dict.fromkeys(place(each.way, each.site) for each in reversed(done)))
    return list(asked.sites)


def place(way: str | None, site: str | None) -> str:
    """Name where an attempt is."""
    return site or ("a flow within" if way == "flow" else HERE)


def runs(asked: Step) -> str:
    """Say in a word what a step runs."""
    if asked.application:
        return asked.application
    if asked.flow is not None:
        return f"flow {asked.flow.name}"
    recipe = asked.recipe
    argv = recipe.get("argv")
    if isinstance(argv, (list, tuple)) and argv:
        return str(argv[0]).rsplit("/", 1)[-1]
    return str(recipe.get("app") or recipe.get("file") or recipe.get("kind") or "")


def open_tasks(db: Db, number: int, step: str = "") -> list[Open]:
    """Read tasks that are not over."""
    return [Open(*one) for one in db.rows("see_open_tasks", flow=number, step=step, most=_OPEN)]


def over(state: str) -> bool:
    """Say whether nothing follows by itself."""
    return state in FINAL
