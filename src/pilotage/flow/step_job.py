"""The job of an attempt: its definition, its cancellation, and its outcome.

It runs here, by a pilot, at a site of the project, or at one with an agent, where its data is
transferred by URL. The end of a job ends its attempt, unless the data has to be checked first.
Steps at a silent site run elsewhere if they may. Attempts from before they were jobs are adopted.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from pilotage.agent.app.command import literal
from pilotage.base import crash, errors, text
from pilotage.bus.model import Result, Status
from pilotage.edge import message
from pilotage.edge import records as edges
from pilotage.edge.message import Handoff
from pilotage.flow import moves, records, task_data
from pilotage.flow.model import AttemptEnd, Step
from pilotage.flow.moves import OVER, DoneAttempt
from pilotage.flow.orders import PlacedOrder, PreparedData, Unfit
from pilotage.flow.records import AttemptRow
from pilotage.job import machine
from pilotage.job import moves as job_moves
from pilotage.job import records as jobs
from pilotage.job.model import (
    Allocation,
    App,
    Binding,
    JobRequest,
    JobSpec,
    Limit,
    NewJob,
    Recipe,
    Resources,
    Shape,
    State,
)
from pilotage.match import sites, submission
from pilotage.match.place import queue_mark
from pilotage.store import Db

_LONGEST = 200
#: Jobs that are cancelled at once.
AT_ONCE = 1000
_WHY = "its workflow no longer needs it"
_REFUSED = "no site would accept it"
#: States of a job at a site that come one after the other.
_UNDER_WAY = frozenset({"ready", "submitted", "running", "staging_out"})


def make_job(order: PlacedOrder, prepared: PreparedData) -> NewJob:
    """Return the job of an attempt; one that could never run is `Unfit`."""
    if order.way == "edge":
        return _new(order, *_far(order, prepared))
    try:
        spec = _spec(order, prepared)
        submission.check(JobRequest(spec))
    except (errors.PilotageError, msgspec.ValidationError) as error:
        raise Unfit(f"it cannot be a job of this hub: {error}") from None
    return _new(order, spec, Binding())


def _new(order: PlacedOrder, spec: JobSpec, binding: Binding) -> NewJob:
    return NewJob(
        spec, binding, key=key_of_attempt(order.key), limit_key=submission.limit_key(spec),
        tag=f"flow:{order.flow}", owner=order.owner,
    )  # fmt: skip


def _far(order: PlacedOrder, prepared: PreparedData) -> tuple[JobSpec, Binding]:
    """Return the job of an attempt at a site with an agent."""
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
        submission.check(JobRequest(spec))
    except errors.PilotageError as error:
        words = error.message.removeprefix(f"{_REFUSED}: ")
        raise Unfit(f"{_REFUSED}: {words}") from None
    return spec, binding


def cancel_unwanted(db: Db, now: float) -> int:
    """Cancel the jobs of attempts that are no longer wanted; return how many."""
    found = records.called_off(db, AT_ONCE)
    for one in found:
        job = jobs.get(db, one.job) if one.job is not None and one.way != "flow" else None
        if job is not None and job.state not in machine.FINAL:
            job_moves.cancel(db, job, now=now, reason=_WHY)
        db.run("flows_cancel_told", task=one.task, number=one.number)
    return len(found)


def key_of_attempt(attempt: str) -> str:
    """Return the key of the job of an attempt: the same attempt is the same job."""
    return hashlib.blake2b(attempt.encode(), digest_size=16).hexdigest()


def _spec(order: PlacedOrder, prepared: PreparedData) -> JobSpec:
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
        # Missing outputs are reported by the check of its data.
        optional_outputs={} if batch else _outputs(step, prepared),
        resources=_resources(step),
        requirements="" if batch else step.requirements,
        site=order.site,
        via="batch" if batch else "",
        allocation=_allocation(step) if batch else Allocation(),
        limit=_limit(step),
    )


def _name(order: PlacedOrder) -> str:
    return f"{order.name}/{order.step}"[:_LONGEST]


def _resources(step: Step) -> Resources:
    return Resources(
        cpus=step.cpus, memory=step.memory or None, gpus=step.gpus, disk=step.disk or None,
        time=float(step.time.most) or None,
    )  # fmt: skip


def _limit(step: Step) -> Limit | None:
    return None if step.limit is None else Limit(literal(step.limit.key), step.limit.most)


def _allocation(step: Step) -> Allocation:
    """Return what a step requests of a batch system."""
    return Allocation(
        nodes=step.nodes.most, tasks=step.tasks, queue=step.queue, account=step.project,
        extra=step.options,
        shape=Shape(
            nodes_least=0 if step.nodes.least == step.nodes.most else step.nodes.least,
            time_least=0.0 if step.time.least == step.time.most else float(step.time.least),
            work=float(step.work),
        ),
    )  # fmt: skip


def _inputs(order: PlacedOrder, prepared: PreparedData) -> tuple[str, ...]:
    """Return the folder with the inputs of a job: all of it goes to the site."""
    if not (prepared.folder and order.inputs):
        return ()
    return (literal(glob.escape(prepared.folder)),)


def _outputs(step: Step, prepared: PreparedData) -> dict[str, str]:
    """Return the outputs that come from the site, with their paths in the folder of the job."""
    if not prepared.folder:
        return {}
    return {
        one or ".": literal(f"{prepared.folder}/{one}".rstrip("/"))
        for one in task_data.leaves(step).outputs
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
    """Escape all texts: those in the definition of a job are templates.

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
    """Create jobs of attempts that sites have already, or that wait to be sent; return how many.

    Their sites know them by the keys that they had; `folder` is that of attempts of jobs.
    """
    rows = db.rows("flows_unadopted")
    for task, number, flow, site, known, state, place, cancel, created, *heard in rows:
        name, owner, step = db.row("flows_whose", task=task) or ("", "", "")
        asked = records.step(db, flow, step)
        spec = JobSpec(App(app=asked.application), name=f"{name}/{step}"[:_LONGEST], site=site)
        data = msgspec.to_builtins(Handoff(place=place))
        new = NewJob(
            spec, Binding(handoff=data), key=key_of_attempt(known), tag=f"flow:{flow}", owner=owner
        )
        job = jobs.add(db, new, created)
        if job is None:
            continue
        job_moves.claim(db, {job: queue_mark(site)}, folder, created, State.STAGING_IN)
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
            job_moves.progress(db, [(job, 1)], State(state), "", now)
        if cancel:
            job_moves.cancel(db, jobs.get(db, job), now=now)
    crash.point("flow.adopted")
    return len(rows)


#: The kind of the reason for an end, where the site has given none.
_KINDS = {"failed": "application", "rejected": "policy", "cancelled": "person"}


class Heard(msgspec.Struct, frozen=True):
    """The outcome of news on attempts."""

    #: Attempts whose data has to be checked, as (task, number).
    check: tuple[tuple[int, int], ...] = ()
    #: Attempts that ended.
    ended: int = 0
    #: Whether there may be more.
    more: bool = False


def news(db: Db, now: float) -> Heard:
    """Process the ends of jobs of attempts."""
    rows = db.rows("flows_news", most=AT_ONCE)
    check: list[tuple[int, int]] = []
    ended = 0
    well: list[DoneAttempt] = []
    #: Attempts of which something was processed that the rows do not know.
    seen: set[str] = set()
    for seq, state, reason, key, kind, code, left, first, *facts in rows:
        if not key:
            continue
        task, number, flow, step, size = facts
        plain = state == "done" and first and size <= moves.MOST_RETURNED_BYTES
        if plain and key not in seen:
            made = None if left is None else text.load(left)
            well.append(
                DoneAttempt(
                    task, number, flow, step, seq, reason, kind or "", code or "", made, size > 0
                )
            )
            seen.add(key)
            continue
        # The order in which attempts ended is that of the story.
        ended += _all_done(db, well, now)
        seen.add(key)
        how = _state(state, code)
        if left is not None and how in OVER:
            db.run("flows_left", key=key, left=left)
        counts = moves.hear(
            db, key, seq, how, reason, kind or _KINDS.get(state, ""), code or "", now
        )
        attempt = records.by_key(db, key) if counts and how in OVER else None
        if attempt is None:
            continue
        if wants_check(attempt):
            check.append((attempt.task, attempt.number))
        else:
            ended += finish(db, attempt, now)
    ended += _all_done(db, well, now)
    if rows:
        db.run("flows_news_taken", last=rows[-1][0])
    return Heard(tuple(check), ended, len(rows) == AT_ONCE)


def _all_done(db: Db, well: list[DoneAttempt], now: float) -> int:
    """Record the ends of attempts that did well, and forget them; return how many."""
    count = len(well)
    moves.done(db, well, now)
    well.clear()
    return count


def _state(state: str, code: str | None) -> str:
    """Return the state of an attempt by that of its job; what a site has forgotten is lost."""
    return "lost" if state == "failed" and code == edges.FORGOTTEN else str(state)


def wants_check(attempt: AttemptRow) -> bool:
    """Return whether the data of an attempt has to be checked before its end counts."""
    if attempt.state == "done":
        return bool(attempt.place)
    # The inputs that it could not read may be lost.
    return attempt.state == "failed" and attempt.kind == "staging"


def finish(db: Db, attempt: AttemptRow, now: float) -> bool:
    """End an attempt that is over, unless its data has to be checked first."""
    if attempt.ended is not None or wants_check(attempt):
        return False
    return moves.end(db, attempt.task, attempt.number, end_of(attempt), now)


def end_of(attempt: AttemptRow) -> AttemptEnd:
    """Return how an attempt ended."""
    state: Any = attempt.state
    return AttemptEnd(state=state, reason=attempt.reason, kind=attempt.kind, code=attempt.code)


# -- at sites with an agent -----------------------------------------------------------------------


class FlowSteps:
    """Receives reports of sites on steps; see `edge.hear.Steps`."""

    def resent(
        self, db: Db, site: str, key: str, word: Status | Result, now: float, /
    ) -> None:  # fmt: skip
        """Record that requested outputs were sent again, or cannot be."""
        attempt = records.by_site_key(db, key)
        if attempt is None or attempt.site != site:
            return
        task_data.told(db, attempt, now)
        if isinstance(word, Status) and word.left and attempt.ended is None:
            # The digest of outputs that were accepted does not change.
            db.run("flows_digest", key=attempt.key, digest=word.left[0].digest)

    def silent(self, db: Db, job: int, reason: str, now: float, /) -> None:
        """Give up a site that is silent on a step, or report that it is waited for."""
        attempt = records.by_job(db, job)
        if attempt is None or attempt.ended is not None:
            return
        if _elsewhere(db, attempt):
            moves.fence(db, attempt.task, now, reason)
        else:
            db.run("flows_say", task=attempt.task, number=attempt.number, reason=reason)

    def offered(self, db: Db, site: str, applications: Sequence[str], now: float, /) -> None:
        """Reject steps that waited for a site without their application."""
        known = sites.offering(site, tuple(applications))
        for number, name in db.rows("flows_waiting_at", site=site):
            found = known.object(site, name, named=True)
            if found is not None:
                job_moves.reject(db, number, sites.sentence(found, now), now=now)

    def strand(self, db: Db, before: float, now: float, /) -> None:
        """Give up silent sites that jobs of steps have waited for since a time."""
        for (job,) in db.rows("flows_stranded", before=before, most=AT_ONCE):
            attempt = records.by_job(db, job)
            if attempt is not None and _elsewhere(db, attempt):
                moves.fence(db, attempt.task, now, f"{attempt.site} is silent")


def _elsewhere(db: Db, attempt: AttemptRow) -> bool:
    """Return whether a task may run at another site than that of its attempt."""
    step = records.step(db, attempt.flow, records.task(db, attempt.task).step)
    return step.on_failure == "other_site" and (not step.sites or {*step.sites} != {attempt.site})
