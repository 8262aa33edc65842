"""Orders: a queued task with all templates filled, the place it goes to, and its prepared data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from pilotage.base import errors, text
from pilotage.bus.model import Input, Output
from pilotage.edge.handoff import Take
from pilotage.flow import check, policy, records
from pilotage.flow.model import AttemptEnd, NewFlow, Step, Way
from pilotage.flow.moves import attempt, give_up, submit
from pilotage.flow.records import FlowHead, StepSource, sources
from pilotage.flow.template import Values, fill, line
from pilotage.job.model import Limit
from pilotage.job.template import write
from pilotage.store import Db

#: The parts of a recipe that are templates; the text of a script is none.
_ARGUMENTS = ("argv", "args")


class OrderInput(msgspec.Struct, frozen=True):
    """An input and its sources; none if it is a URL or its step was skipped."""

    take: Take
    sources: tuple[StepSource, ...]


class TaskOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The next attempt of a queued task, with all templates filled."""

    flow: int
    #: The name of the flow, whose it is, and its tag.
    name: str
    owner: str
    tag: str
    step: str
    task: int
    #: Its index in the list of the step, and its value.
    item: int
    value: Any
    #: The number of the attempt, and its key at the site.
    number: int
    key: str
    #: The step with all templates filled; its `sites` are those that are left, the best first.
    definition: Step
    #: Sites to avoid, where any may be chosen.
    avoid: tuple[str, ...]
    inputs: tuple[OrderInput, ...]


def make_order(db: Db, task: int, now: float) -> TaskOrder | None:
    """Return the order of a queued task; nothing if it is not queued, or fails here."""
    return next(make_orders(db, [task], now), None)


def make_orders(db: Db, tasks: Sequence[int], now: float) -> Iterator[TaskOrder]:
    """Return the orders of queued tasks, without those that are not queued, or fail here.

    A name that stands for nothing is the failure of the task, and its reason. Flows and steps are
    read once for all their tasks.
    """
    facts = {row[0]: row for row in db.rows("flow_tasks_facts", tasks=text.dump(tasks))}
    head = functools.cache(functools.partial(records.head, db))
    step = functools.cache(functools.partial(_templates, db))
    for task in tasks:
        if task in facts:
            _, flow, name, *rest = facts[task]
            order = _order(db, task, head(flow), name, *step(flow, name), rest, now)
            if order is not None:
                yield order


def _order(
    db: Db, task: int, head: FlowHead, name: str, definition: Step, templates: Sequence[str],
    facts: list[Any], now: float,
) -> TaskOrder | None:  # fmt: skip
    item, body, last, since = facts
    flow, value = head.id, text.load(body)
    look = Values(db, head, item=value, index=item, attempt=last + 1).look
    rows = db.rows("flow_attempts_sites", task=task) if last > since else ()
    tried = [policy.PastAttempt(*row) for row in rows]
    try:
        step = _filled(definition, templates, look)
        check.named(step)
        # None would mean any site.
        sites = policy.candidates(step, step.sites, tried) if step.sites else ()
        if step.sites and not sites:
            raise errors.BadFlow(f"refused by {' and by '.join(step.sites)}")
    except errors.BadRule as error:
        give_up(db, task, f"{error.message}; {error.hint}" if error.hint else error.message, now)
        return None
    return TaskOrder(
        flow=flow,
        name=head.name,
        owner=head.owner,
        tag=head.tag,
        step=name,
        task=task,
        item=item,
        value=value,
        number=last + 1,
        key=f"flow.{flow}.{task}.{last + 1}",
        definition=msgspec.structs.replace(step, sites=sites),
        avoid=policy.avoid(step, tried),
        inputs=tuple(
            OrderInput(take, tuple(sources(db, flow, take)) if take.step else ())
            for take in step.inputs
        ),
    )


def _filled(step: Step, templates: Sequence[str], look: Callable[[str], Any]) -> Step:
    """Fill the templates of a step, which are in these of its fields."""
    return msgspec.structs.replace(
        step, **{name: _FILL[name](getattr(step, name), look) for name in templates}
    )


def _templates(db: Db, flow: int, name: str) -> tuple[Step, tuple[str, ...]]:
    """Read a step; return the fields that differ from task to task, too."""
    step = records.step(db, flow, name)
    found = {one for one in _FILL if _varies(getattr(step, one))}
    # These are written otherwise, too: arguments become text, and empty sites are left out.
    found |= {one for one in ("recipe", "sites") if getattr(step, one)}
    return step, tuple(found)


def _varies(value: object) -> bool:
    """Return whether a value has templates; of what is no plain value, that it has."""
    if isinstance(value, str):
        return "{" in value or "}" in value
    if isinstance(value, Mapping):
        return any(map(_varies, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_varies, value))
    return not isinstance(value, bool | int | float | None)


def _limit(limit: Limit | None, look: Callable[[str], Any]) -> Limit | None:
    return None if limit is None else Limit(line(limit.key, look), limit.most)


def _takes(take: Take, look: Callable[[str], Any]) -> list[Take]:
    """Fill an input; one that is a list of files or URLs becomes many."""
    found = fill(take.url, look)
    return [
        Take(take.step, line(take.output, look), write(url), line(take.path, look), take.sha256)
        for url in (found if isinstance(found, list | tuple) else (found,))
    ]


def _lines(parts: tuple[str, ...], look: Callable[[str], Any]) -> tuple[str, ...]:
    return tuple(line(part, look) for part in parts)


def _recipe(recipe: dict[str, Any], look: Callable[[str], Any]) -> dict[str, Any]:
    """Fill the arguments of a recipe; one that is a list becomes many."""
    found = dict(recipe)
    for name in _ARGUMENTS:
        if name in recipe:
            parts = (fill(part, look) for part in recipe[name])
            found[name] = [
                write(one)
                for part in parts
                for one in (part if isinstance(part, list | tuple) else (part,))
            ]
    return found


#: How each field of a step is filled that may have templates.
_FILL: dict[str, Callable[[Any, Callable[[str], Any]], Any]] = {
    "sites": lambda sites, look: tuple(site for site in _lines(sites, look) if site),
    "application": line,
    "parameters": fill,
    "recipe": _recipe,
    "env": lambda env, look: {key: line(value, look) for key, value in env.items()},
    "config": line,
    "inputs": lambda inputs, look: tuple(one for take in inputs for one in _takes(take, look)),
    "outputs": _lines,
    "result": line,
    "limit": _limit,
    "queue": line,
    "project": line,
    "options": _lines,
}


def start_child(db: Db, task: int, now: float) -> int | None:
    """Start the flow that a task is; return its number, or nothing if the task cannot be sent."""
    asked = make_order(db, task, now)
    if asked is None or asked.definition.flow is None:
        return None
    inner = asked.definition.flow
    unknown = asked.definition.parameters.keys() - inner.params.keys()
    if unknown:
        give_up(db, task, f"the flow has no parameter `{min(unknown)}`", now)
        return None
    flow = msgspec.structs.replace(inner, params=inner.params | asked.definition.parameters)
    number = attempt(db, task, "flow", "", "", now)
    new = NewFlow(
        flow=flow, key=asked.key, owner=asked.owner, source="flow", parent=task, tag=asked.tag
    )
    child = submit(db, new, now)
    db.run("flow_attempt_job", task=task, number=number, job=child)
    return child


class PlacedOrder(TaskOrder, frozen=True, kw_only=True):
    """The next attempt of a task, with its place."""

    way: Way
    #: The site; empty for a job of this hub that runs anywhere, and for a flow within.
    site: str


class PreparedData(msgspec.Struct, frozen=True, kw_only=True):
    """The data of an attempt: its inputs, and where its outputs go."""

    #: For a job at a site: what is transferred before it, and after it.
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    #: For a job of this hub: its folder, which is there, with its inputs; empty means its own.
    folder: str = ""
    #: Where readers find what it leaves, with a slash at the end; empty if it leaves nothing.
    place: str = ""
    #: Bytes that will be read.
    read: int = 0


class TaskData(Protocol):
    """Prepares and checks the data of tasks."""

    async def prepare(self, order: PlacedOrder) -> PreparedData:
        """Prepare the data of an attempt; may be repeated for one that was not dispatched.

        Raise `errors.PilotageError` if it cannot be had: the attempt is then not made, and tried
        again later; raise `Unfit` if it never can.
        """
        ...

    async def check(self, task: int, number: int) -> AttemptEnd | None:
        """Check the outputs of an attempt that reports to be done; may be repeated.

        Return how it really ended, with its result and files written down; nothing means that this
        is not known yet, and `check` is called again some time later.
        """
        ...


class Unfit(Exception):
    """A task that can never be dispatched as it is."""

    def __init__(self, reason: str) -> None:
        """Return why."""
        super().__init__(reason)
        self.reason = reason
