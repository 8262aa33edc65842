"""The job that an attempt is: here, by a pilot, at a site of the project, or at one with an agent.

One at a site with an agent has its data beside it, which goes there and away by URL. Attempts from
before those were jobs are adopted.
"""

from __future__ import annotations

import glob
import hashlib
from typing import Any

import msgspec

from pilotage.agent.app.command import literal
from pilotage.base import crash, errors
from pilotage.edge import message
from pilotage.edge.message import Handoff
from pilotage.flow import definition, records, results
from pilotage.flow.handoff import Order, Prepared, Unfit
from pilotage.flow.model import Step
from pilotage.job import bulk, machine, moves
from pilotage.job import records as jobs
from pilotage.job.model import (
    Allocation,
    App,
    Binding,
    JobSpec,
    Limit,
    NewJob,
    Recipe,
    Resources,
    Shape,
    State,
)
from pilotage.match import submission
from pilotage.match.place import queue_mark
from pilotage.store import Db

_LONGEST = 200
#: Jobs that are cancelled at once.
AT_ONCE = 1000
_WHY = "its workflow does not need it any more"
_REFUSED = "no site would accept it"
#: States of a job at a site that come one after the other.
_UNDER_WAY = frozenset({"ready", "submitted", "running", "staging_out"})


class _Item(msgspec.Struct, frozen=True):
    """A job as `submission.check` wants it."""

    spec: JobSpec
    binding: Binding = Binding()
    key: str = ""
    tag: str = ""
    after: tuple[int, ...] = ()


def job(order: Order, prepared: Prepared) -> NewJob:
    """Write the job of an attempt; one that could never run is `Unfit`."""
    if order.way == "edge":
        return _new(order, *_far(order, prepared))
    try:
        spec = _spec(order, prepared)
        submission.check(_Item(spec))
    except (errors.PilotageError, msgspec.ValidationError) as error:
        raise Unfit(f"it cannot be a job of this hub: {error}") from None
    return _new(order, spec, Binding())


def _new(order: Order, spec: JobSpec, binding: Binding) -> NewJob:
    return NewJob(
        spec, binding, key=key(order.key), limit_key=submission.limit_key(spec),
        tag=f"flow:{order.flow}", owner=order.owner,
    )  # fmt: skip


def _far(order: Order, prepared: Prepared) -> tuple[JobSpec, Binding]:
    """Write the job of an attempt at a site with an agent."""
    step = order.definition
    spec = JobSpec(
        recipe=App(app=step.application),
        name=_name(order),
        params=_literal(step.parameters),
        env=_literal(step.env),
        resources=_resources(step),
        site=order.site,
        allocation=_allocation(step),
        limit=_limit(step),
    )
    data = Handoff(
        inputs=prepared.inputs, outputs=prepared.outputs, place=prepared.place,
        config=step.config, config_file=step.config_file, waits=step.on_failure != "other_site",
    )  # fmt: skip
    binding = Binding(handoff=msgspec.to_builtins(data))
    try:
        # As it will be written for the site, but for its number.
        there = message.remote(spec, binding, "", 0)
        message.job(there, spec, data, site=order.site, key=order.key, reply="")
        submission.check(_Item(spec))
    except errors.PilotageError as error:
        words = error.message.removeprefix(f"{_REFUSED}: ")
        raise Unfit(f"{_REFUSED}: {words}") from None
    return spec, binding


def cancel(db: Db, now: float) -> int:
    """Cancel the jobs of attempts that are not wanted any more; return how many."""
    found = records.called_off(db, AT_ONCE)
    for one in found:
        job = jobs.get(db, one.job) if one.job is not None and one.way != "flow" else None
        if job is not None and job.state not in machine.FINAL:
            moves.cancel(db, job, now=now, reason=_WHY)
        db.run("flows_cancel_told", task=one.task, number=one.number)
    return len(found)


def key(attempt: str) -> str:
    """Return the key of the job of an attempt: the same attempt is the same job."""
    return hashlib.blake2b(attempt.encode(), digest_size=16).hexdigest()


def _spec(order: Order, prepared: Prepared) -> JobSpec:
    step = order.definition
    batch = bool(order.site)
    return JobSpec(
        recipe=_recipe(step),
        name=_name(order),
        params=_literal(step.parameters),
        env=_literal(step.env),
        cwd=literal(prepared.folder),
        inputs=_inputs(order, prepared),
        outputs=_outputs(step, prepared) if batch else {},
        # Whoever looks at what it left says what is missing.
        optional_outputs={} if batch else _outputs(step, prepared),
        resources=_resources(step),
        requirements="" if batch else step.requirements,
        site=order.site,
        via="batch" if batch else "",
        allocation=_allocation(step) if batch else Allocation(),
        limit=_limit(step),
    )


def _name(order: Order) -> str:
    return f"{order.name}/{order.step}"[:_LONGEST]


def _resources(step: Step) -> Resources:
    return Resources(
        cpus=step.cpus, memory=step.memory or None, gpus=step.gpus, disk=step.disk or None,
        time=float(step.time.most) or None,
    )  # fmt: skip


def _limit(step: Step) -> Limit | None:
    return None if step.limit is None else Limit(literal(step.limit.key), step.limit.most)


def _allocation(step: Step) -> Allocation:
    """Say what a step asks a batch system for."""
    return Allocation(
        nodes=step.nodes.most, tasks=step.tasks, queue=step.queue, account=step.project,
        extra=step.options,
        shape=Shape(
            nodes_least=0 if step.nodes.least == step.nodes.most else step.nodes.least,
            time_least=0.0 if step.time.least == step.time.most else float(step.time.least),
            work=float(step.work),
        ),
    )  # fmt: skip


def _inputs(order: Order, prepared: Prepared) -> tuple[str, ...]:
    """Name the folder that the inputs of a job were brought to: all of it goes to the site."""
    if not (prepared.folder and order.inputs):
        return ()
    return (literal(glob.escape(prepared.folder)),)


def _outputs(step: Step, prepared: Prepared) -> dict[str, str]:
    """Name what comes home from the site, into the folder where outputs are looked for."""
    if not prepared.folder:
        return {}
    return {
        one or ".": literal(f"{prepared.folder}/{one}".rstrip("/"))
        for one in results.leaves(step).outputs
    }


def _recipe(step: Step) -> Recipe:
    if step.application:
        return App(app=step.application)
    found = {
        name: _literal(value) if name in ("argv", "args") else value
        for name, value in step.recipe.items()
    }
    made: Recipe = msgspec.convert(found, Recipe)
    return made


def _literal(value: Any) -> Any:  # noqa: ANN401 - plain values
    """Write all texts so that they say just themselves: what a job's definition has are templates.

    Those of the flow are filled in already.
    """
    if isinstance(value, str):
        return literal(value)
    if isinstance(value, dict):
        return {name: _literal(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_literal(one) for one in value]
    return value


def adopt(db: Db, folder: str, now: float) -> int:
    """Make jobs of attempts that sites have already, or that wait to be sent; return how many.

    Their sites know them by the keys that they had; `folder` is that of attempts of jobs.
    """
    rows = db.rows("flows_unadopted")
    for task, number, flow, site, known, state, place, cancel, created, *heard in rows:
        name, owner, step = db.row("flows_whose", task=task) or ("", "", "")
        asked = definition.step(db, flow, step)
        spec = JobSpec(App(app=asked.application), name=f"{name}/{step}"[:_LONGEST], site=site)
        data = msgspec.to_builtins(Handoff(place=place))
        new = NewJob(spec, Binding(handoff=data), key=key(known), tag=f"flow:{flow}", owner=owner)
        job = jobs.add(db, new, created)
        if job is None:
            continue
        bulk.claim(db, {job: queue_mark(site)}, folder, created, State.STAGING_IN)
        sent, last, quiet, seq = heard
        db.run(
            "edge_attempt_adopt", job=job, number=1, site=site, state=state, seq=seq,
            cancel=max(0, cancel - 1), created=created, sent=sent, heard=last, asked=quiet,
            place=place, key=known,
        )  # fmt: skip
        db.run("flows_message_adopt", job=job, task=task, number=number)
        db.run("flows_message_adopted", task=task, number=number)
        db.run("flows_adopted", task=task, number=number, job=job)
        if state in _UNDER_WAY:
            moves.progress(db, [(job, 1)], State(state), "", now)
        if cancel:
            moves.cancel(db, jobs.get(db, job), now=now)
    crash.point("flow.adopted")
    return len(rows)
