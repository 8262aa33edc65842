"""Format flows, steps, tasks and attempts as data and as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from pilotage.base import text, units
from pilotage.cli import formatting
from pilotage.cli.answer import Cell, Shown, Style, Styled, Table, columns, line
from pilotage.flow import view
from pilotage.flow.records import AttemptRow, StoryLine
from pilotage.flow.view import FlowSheet, FlowSummary, StepSummary, TaskDetail

_FLOWS = columns("ID> NAME STATE STEPS> TIME> OWNER REASON")
_STEPS = columns("STEP STATE TASKS> SITE TRIES> TIME> LEFT> READ> WHY")
_TASKS = columns("ITEM> VALUE STATE SITE TRY> TIME> LEFT> WHY")
_TRIES = columns("ITEM> TRY> STATE SITE JOB> SENT TIME> LEFT> READ> WHY")
_STYLES: dict[str, Style] = {
    "skipped": "dim", "cancelling": "yellow", "staging_out": "cyan", "staging_in": "cyan",
}  # fmt: skip
#: Times in data for programs.
_TIMES = ("created", "started", "ended", "cleared", "sent", "heard", "asked", "time")


def state(word: str) -> Styled:
    """Write a state in its colour."""
    if word in _STYLES:
        return Styled(word.replace("_", " "), _STYLES[word])
    return formatting.state(word)


def data(one: msgspec.Struct) -> dict[str, Any]:
    """Write a row for programs, with times as they read them."""
    found: dict[str, Any] = msgspec.to_builtins(one)
    return found | {name: formatting.stamp(found[name]) for name in _TIMES if name in found}


def flows(found: Iterable[FlowSummary], now: float) -> Table:
    """Write flows as a table."""
    return Table(_FLOWS, tuple(_flow(one, now) for one in found))


def _flow(one: FlowSummary, now: float) -> tuple[Cell, ...]:
    time = units.for_people(max(0.0, (one.ended or now) - one.created))
    return one.id, one.name, state(one.state), far(one), time, one.owner, text.show(one.reason)


def far(one: FlowSummary) -> str:
    """Return how many steps of a flow are over."""
    over = sum(count for word, count in one.steps.items() if view.over(word))
    return f"{over}/{sum(one.steps.values())}"


def whole(found: FlowSheet, now: float) -> Iterator[Shown]:
    """Write a flow and its steps."""
    one, flow = found.row, found.flow
    yield line(Styled(f"flow {one.id}", "bold"), f"  {text.show(one.name)}  ", state(one.state))
    counts = ", ".join(f"{count} {word}" for word, count in one.steps.items())
    moved = sum(step.read for step in found.steps)
    left = sum(step.bytes for step in found.steps)
    facts = {
        "about": flow.description,
        "reason": one.reason,
        "steps": counts,
        "params": ", ".join(f"{key} = {value}" for key, value in flow.params.items()),
        "goes to": flow.to,
        "owner": one.owner,
        "tag": one.tag,
        "came by": f"a {one.source}" if one.source in ("command", "message") else one.source,
        "within": f"task {one.parent}" if one.parent is not None else "",
        "made": formatting.clock(one.created),
        "time": units.for_people(max(0.0, (one.ended or now) - one.created)),
        "data": f"{_bytes(left) or '0 B'} left, {_bytes(moved) or '0 B'} read"
        if left or moved
        else "",
        "cleared": f"its data was removed at {formatting.clock(one.cleared)}"
        if one.cleared
        else "",
    }
    for name, value in facts.items():
        if value:
            yield formatting.pair(name, value)
    yield ""
    yield Table(_STEPS, tuple(_step(step, now) for step in found.steps))


def _step(one: StepSummary, now: float) -> tuple[Cell, ...]:
    seconds = one.seconds(now)
    return (
        text.show(one.name), state(one.state), f"{one.done}/{one.total}" if one.each else "",
        ", ".join(one.sites), one.attempts or "",
        "" if seconds is None else units.for_people(seconds), _bytes(one.bytes), _bytes(one.read),
        text.show(one.why),
    )  # fmt: skip


def _bytes(count: int) -> str:
    return units.bytes_for_people(count) if count else ""


def one_step(one: StepSummary, tasks: Sequence[TaskDetail], told: Sequence[StoryLine], now: float,
             whys: dict[int, str]) -> Iterator[Shown]:  # fmt: skip
    """Write a step with its tasks, the attempts at them and what happened."""
    yield line(Styled(f"step {text.show(one.name)}", "bold"), "  ", state(one.state))
    seconds = one.seconds(now)
    counts = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in one.tasks.items())
    facts = {
        "why": one.why,
        "runs": one.runs,
        "needs": ", ".join(one.needs),
        "sites": ", ".join(one.sites),
        "tasks": counts if one.each else "",
        "started": formatting.clock(one.started) if one.started else "",
        "time": "" if seconds is None else units.for_people(seconds),
        "left": f"{formatting.count(one.files, 'file')}, {units.bytes_for_people(one.bytes)}"
        if one.files or one.bytes
        else "",
        "read": _bytes(one.read),
    }
    for name, value in facts.items():
        if value:
            yield formatting.pair(name, value)
    if tasks and one.each:
        yield ""
        yield Table(_TASKS, tuple(_task(each, whys.get(each.item, each.reason), now)
                                  for each in tasks))  # fmt: skip
    # Of many tasks, the attempts at those that needed more than one.
    tries = [
        (task, each)
        for task in tasks
        for each in task.attempts
        if not one.each or len(task.attempts) > 1
    ]
    if tries:
        yield ""
        yield Table(_TRIES, tuple(_try(task, each, now) for task, each in tries))
    if told:
        yield ""
        yield from (_told(each) for each in reversed(told))


def _task(one: TaskDetail, why: str, now: float) -> tuple[Cell, ...]:
    last = one.attempts[-1] if one.attempts else None
    seconds = None if one.started is None else (one.ended or now) - one.started
    return (
        one.item, text.show(_short(one.value)), state(one.state),
        view.place(last.way, last.site) if last else "", one.attempt or "",
        "" if seconds is None else units.for_people(max(0.0, seconds)),
        _bytes(last.bytes) if last else "", text.show(why),
    )  # fmt: skip


def _short(value: Any) -> str:  # noqa: ANN401 - any JSON value
    shown = value if isinstance(value, str) else "" if value is None else text.dump(value)
    return shown if len(shown) <= 40 else shown[:39] + "…"


def _try(task: TaskDetail, one: AttemptRow, now: float) -> tuple[Cell, ...]:
    seconds = None if one.started is None else (one.ended or now) - one.started
    words = one.reason + (" (does not count any more)" if one.fenced else "")
    return (
        task.item, one.number, state(one.state), view.place(one.way, one.site), one.job or "",
        formatting.clock(one.created),
        "" if seconds is None else units.for_people(max(0.0, seconds)),
        _bytes(one.bytes), _bytes(one.read), text.show(words.strip()),
    )  # fmt: skip


def _told(one: StoryLine) -> Shown:
    about = one.step or "flow"
    which = f" (task {one.task}, attempt {one.number})" if one.number else ""
    words = f"  {text.show(one.words)}" if one.words else ""
    return line(
        Styled(formatting.clock(one.time), "dim"),
        f"  {text.show(about)}{which}  ", state(one.state),
        words,
    )  # fmt: skip


def story(told: Sequence[StoryLine]) -> Iterator[Shown]:
    """Write what happened, the oldest first."""
    return (_told(each) for each in reversed(told))
