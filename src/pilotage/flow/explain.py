"""Why the steps of a flow do not progress, with what is known of sites and of jobs of this hub."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pilotage.base import units
from pilotage.edge import view
from pilotage.flow import view as look
from pilotage.flow.model import FINAL, FlowState
from pilotage.flow.view import FlowSheet, OpenTask, StepSummary
from pilotage.job.model import State as JobState
from pilotage.project.settings import Settings
from pilotage.store import Db

if TYPE_CHECKING:
    from pilotage.match.facts import Explanation

#: The most names of steps and reasons in one sentence.
_FEW = 3
_STAGES: Mapping[str, str] = {
    FlowState.WAITING: "waits",
    FlowState.QUEUED: "waits for a place",
    FlowState.STAGING_IN: "gets its inputs",
    FlowState.READY: "is ready",
    FlowState.SUBMITTED: "waits in the queue of the batch system",
    FlowState.RUNNING: "runs",
    FlowState.STAGING_OUT: "sends its outputs",
    FlowState.HELD: "is held",
    FlowState.CANCELLING: "is being cancelled",
}


def explain_steps(
    rows: Sequence[StepSummary], tasks: Iterable[OpenTask], silent: Mapping[str, str], now: float
) -> list[StepSummary]:
    """Add the reason to each step that is not over; `silent` has those of silent sites."""
    states = {one.name: one.state for one in rows}
    mine: dict[str, list[OpenTask]] = {}
    for task in tasks:
        mine.setdefault(task.step, []).append(task)
    return [
        msgspec.structs.replace(
            one, why=explain_step(one, states, mine.get(one.name, []), silent, now)
        )
        for one in rows
    ]  # fmt: skip


def explain_step(
    one: StepSummary,
    states: Mapping[str, str],
    tasks: Sequence[OpenTask],
    silent: Mapping[str, str],
    now: float,
) -> str:
    """Return why a step does not progress, or how it ended."""
    if one.state in FINAL:
        return one.reason
    if one.state == FlowState.WAITING:
        left = [name for name in one.needs if states.get(name) not in FINAL]
        return one.reason or (f"waits for {_names(left)}" if left else "is about to start")
    counts = Counter(explain_task(each, silent, now) for each in tasks)
    if not counts:
        return one.reason
    if one.total == 1:
        words = next(iter(counts))
        # That it runs, and where, is shown beside it.
        return "" if tasks[0].stage == FlowState.RUNNING and ":" not in words else words
    told = [f"{count} {_plural(words, count)}" for words, count in counts.most_common(_FEW)]
    more = len(counts) - _FEW
    return "; ".join(told) + (f"; and {more} other reasons" if more > 0 else "")


def explain_task(one: OpenTask, silent: Mapping[str, str], now: float) -> str:
    """Return where a task is and what it waits for."""
    if one.way is None or one.state == FlowState.QUEUED:
        return _queued(one, now)
    where = look.place(one.way, one.site)
    if (words := silent.get(where)) and one.way == "edge":
        return f"is at {where}: {words}"
    if one.way == "edge" and one.stage == FlowState.READY and one.sent is None:
        return f"is on its way to {where}"
    if one.way == "edge" and one.sent is not None and one.heard is None:
        return f"was sent to {where}, which has not answered yet"
    stage = one.stage or one.state
    told = f"{_STAGES.get(stage, stage)} {'here' if where == look.HERE else f'at {where}'}"
    words = one.words or one.reason
    return f"{told}: {words}" if words and stage != FlowState.RUNNING else told


def _queued(one: OpenTask, now: float) -> str:
    left = one.not_before - now
    if left > 0 and one.way is not None:
        # Whole seconds, so that tasks with the same reason are counted together.
        whole = max(1, round(left))
        again = f"is tried again in {units.for_people(whole) if whole >= 60 else f'{whole} s'}"
        return f"{again}: {one.reason}" if one.reason else again
    return f"waits to be sent: {one.reason}" if one.reason else "waits to be sent"


def _names(names: Sequence[str]) -> str:
    told = ", ".join(f"`{name}`" for name in names[:_FEW])
    more = len(names) - _FEW
    return f"{told} and {more} more" if more > 0 else told


def _plural(words: str, count: int) -> str:
    """Put a sentence into the plural."""
    if count == 1:
        return words
    first, _, rest = words.partition(" ")
    verb = {"is": "are", "was": "were", "gets": "get", "waits": "wait", "runs": "run",
            "sends": "send"}.get(first, first)  # fmt: skip
    return f"{verb} {rest}" if rest else verb


#: The most jobs of this hub that are explained for one flow.
_ASKED = 4
_IDLE = "nothing runs this project now: `pilotage up` does"
#: States of a job of the hub that can be explained.
_WAITS = frozenset({JobState.QUEUED, JobState.WAITING, JobState.READY, JobState.HELD})
#: States of a job for a site with an agent that has not been sent there.
_HERE = frozenset({JobState.QUEUED, JobState.HELD})


def sheet(
    db: Db, number: int, now: float, settings: Settings, root: Path, *, running: bool = True
) -> FlowSheet:
    """Read a flow, with the reason why each step does not progress."""
    found = look.sheet(db, number)
    steps = explain_steps(found.steps, found.open, silent(db, now, running=running), now)
    if look.over(found.row.state):
        return found._replace(steps=steps)
    if not running:
        steps = [_idle(one) for one in steps]
    else:
        steps = _explained(db, steps, found.open, now, settings, root)
    return found._replace(steps=steps)


def silent(db: Db, now: float, *, running: bool = True) -> dict[str, str]:
    """Return why sites with an agent do not progress, by site."""
    seen = view.look(db, now, running=running)
    if seen.broker.trouble:
        told = f"the broker cannot be reached: {seen.broker.trouble}"
        return {one.name: told for one in seen.edges} if running else {}
    found: dict[str, str] = {}
    for one in seen.edges:
        if one.state == "silent":
            found[one.name] = f"last seen {units.for_people(now - one.heard)} ago"
        elif one.state == "trouble" or one.draining:
            found[one.name] = one.words
    return found


def _idle(one: StepSummary) -> StepSummary:
    if look.over(one.state) or one.state == FlowState.WAITING:
        return one
    told = f"{one.why}; {_IDLE}" if one.why else _IDLE
    return msgspec.structs.replace(one, why=told)


def _explained(
    db: Db,
    steps: list[StepSummary],
    tasks: Iterable[OpenTask],
    now: float,
    settings: Settings,
    root: Path,
) -> list[StepSummary]:
    """Explain waiting jobs of this hub, one of each step."""
    jobs: dict[str, int] = {}
    for task in tasks:
        waits = _WAITS if task.way == "here" else _HERE
        if task.way != "flow" and task.job is not None and task.stage in waits:
            jobs.setdefault(task.step, task.job)
    if not jobs:
        return steps
    from pilotage.match import explain
    from pilotage.status.explain import JobExplainer  # most flows need it not

    witness = JobExplainer(db, settings, now=now, running=True, root=root)
    told = {
        step: _said(explain.explain(witness.facts(job)))
        for step, job in list(jobs.items())[:_ASKED]
    }
    return [
        msgspec.structs.replace(one, why=_joined(one, told[one.name])) if one.name in told else one
        for one in steps
    ]


def _said(found: Explanation) -> str:
    if not found.reasons:
        return found.headline
    first = found.reasons[0]
    return f"{found.headline}: {first.text}" + (f", {first.detail}" if first.detail else "")


def _joined(one: StepSummary, told: str) -> str:
    return told if one.total == 1 else f"{one.why}; {told}"
