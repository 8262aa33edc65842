"""Progress of steps: the end of one starts those that waited for it, or skips them.

Everything is counted, never searched for: each step has the number of steps it waits for, each flow
the number of its open steps. What follows from one end is processed from a list, not by recursion,
since a chain of skipped steps may be ten thousand long.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import msgspec

from pilotage.base import errors, text
from pilotage.flow import check, policy, records, template
from pilotage.flow.model import Step
from pilotage.flow.template import Values, fill
from pilotage.store import Db


def note(
    db: Db, now: float, flow: int, state: str, words: str = "", *, step: str = "", task: int = 0,
    number: int = 0,
) -> None:  # fmt: skip
    """Add a line to the story of a flow: on it, a step, a task or an attempt."""
    db.run(
        "flow_journal_add", now=now, flow=flow, step=step, task=task, number=number, state=state,
        words=words,
    )  # fmt: skip


class StepEnd(msgspec.Struct, frozen=True):
    """A step that is over."""

    step: str
    #: `done`, `failed`, `skipped` or `cancelled`.
    state: str
    reason: str = ""
    #: Whether its failure makes those after it pointless, and the flow fail.
    bad: bool = False


class FlowEnd(msgspec.Struct, frozen=True):
    """A flow whose steps are all over."""

    flow: int
    failed: int
    cancelling: bool


def begin(db: Db, flow: int, now: float) -> FlowEnd | None:
    """Start the steps that wait for nothing."""
    found = (_start(db, flow, row[0], now) for row in db.rows("flow_steps_free", flow=flow))
    return settle(db, flow, [over for over in found if over], now)


def settle(
    db: Db, flow: int, over: list[StepEnd], now: float, *, more: int = 0
) -> FlowEnd | None:  # fmt: skip
    """Record that steps are over, with all that follows; return whether the flow is over.

    `more` is the number of further steps that are over already and only counted.
    """
    left = deque(over)
    count, failed = more, 0
    while left:
        one = left.popleft()
        count += 1
        failed += one.bad
        stale = db.value(
            "flow_step_end", flow=flow, step=one.step, state=one.state, reason=one.reason, now=now
        )
        note(db, now, flow, one.state, one.reason, step=one.step)
        if stale:
            left.extend(_fresh(db, flow, one, now))
        if one.state == "cancelled":
            continue
        if one.bad:
            count += skip(db, flow, one.step, one.reason, now)
            continue
        for name in _met(db, flow, one):
            if started := _start(db, flow, name, now):
                left.append(started)
    return _counted(db, flow, count, failed)


def _counted(db: Db, flow: int, count: int, failed: int) -> FlowEnd | None:
    row = db.row("flow_count", flow=flow, over=count, failed=failed)
    if row is None or row[1] > 0:
        return None
    return FlowEnd(flow, row[2], row[0] == "cancelling")


def _fresh(db: Db, flow: int, one: StepEnd, now: float) -> list[StepEnd]:
    """Resume tasks that waited for lost data of a step, or fail them."""
    db.run("flow_step_fresh", flow=flow, step=one.step)
    if one.state == "done" or (one.state == "failed" and not one.bad):
        db.run("flow_tasks_go_on", flow=flow, step=one.step, now=now)
        return []
    words = f"`{one.step}` is {one.state}: {one.reason}"
    rows = db.rows("flow_tasks_in_vain", flow=flow, step=one.step, reason=words, now=now)
    return gone(db, flow, [row[0] for row in rows], "failed", words, now)


def gone(
    db: Db, flow: int, steps: list[str], state: str, reason: str, now: float
) -> list[StepEnd]:  # fmt: skip
    """Record that tasks are over, each named by its step; return the steps that are over, too."""
    found: list[StepEnd] = []
    failed = state == "failed"
    for step, count in Counter(steps).items():
        row = db.row(
            "flow_step_tasks_over", flow=flow, step=step, count=count,
            failed=count if failed else 0, off=0 if failed else count, reason=reason,
        )  # fmt: skip
        if row is None:
            continue
        note(db, now, flow, state, f"{count} tasks: {reason}", step=step)
        if not row[0]:
            found.append(_last(db, flow, step, row))
        elif failed:
            _first_failure(db, flow, step, row[1] - count, reason, now)
    return found


def _first_failure(db: Db, flow: int, step: str, before: int, reason: str, now: float) -> None:
    """Skip the steps after one at the first failure of a task, before the other tasks end."""
    if not before and records.step(db, flow, step).on_failure != "continue":
        _counted(db, flow, skip(db, flow, step, reason, now), 0)


def _last(db: Db, flow: int, step: str, row: tuple[Any, ...]) -> StepEnd:
    """Return how a step ended whose last task is over."""
    _, bad, off, total, words = row
    if bad:
        harm = records.step(db, flow, step).on_failure != "continue"
        words = words if total == 1 else f"{bad} of {total} tasks failed: {words}"
        return StepEnd(step, "failed", words, bad=harm)
    return StepEnd(step, "cancelled", words) if off else StepEnd(step, "done")


def _met(db: Db, flow: int, one: StepEnd) -> list[str]:
    """Return the steps that no longer wait."""
    rows = db.rows("flow_step_met", flow=flow, step=one.step, ran=int(one.state != "skipped"))
    return [name for name, unmet, _ in sorted(rows, key=lambda row: row[2]) if not unmet]


def skip(db: Db, flow: int, step: str, reason: str, now: float) -> int:
    """Skip all steps after one that failed; return their number."""
    words = f"`{step}` failed: {reason}" if reason else f"`{step}` failed"
    left = deque([step])
    count = 0
    while left:
        for (name,) in db.rows(
            "flow_step_skip", flow=flow, step=left.popleft(), reason=words, now=now
        ):
            note(db, now, flow, "skipped", words, step=name)
            left.append(name)
            count += 1
    return count


def _start(db: Db, flow: int, name: str, now: float) -> StepEnd | None:
    """Start a step; it may be over at once."""
    body, goes, _, _, ran, _ = db.row("flow_step_facts", flow=flow, step=name) or ("",) * 6
    step = records.read_step(body)
    if step.needs and not ran:
        return StepEnd(name, "skipped", "all steps that it needs were skipped")
    try:
        items = _items(db, flow, step, goes)
    except errors.BadRule as error:
        return StepEnd(name, "failed", _words(error), bad=step.on_failure != "continue")
    if items is None:
        return StepEnd(name, "skipped", f"`{step.when}` does not hold")
    db.run("flow_step_start", flow=flow, step=name, total=len(items), now=now)
    db.run(
        "flow_tasks_add", flow=flow, step=name, retries=policy.tries(step), now=now,
        items=text.dump([text.dump(item) for item in items]),
    )  # fmt: skip
    db.run("flow_tasks_spare", flow=flow, step=name, total=len(items), now=now)
    note(db, now, flow, "running", f"{len(items)} tasks" if goes else "", step=name)
    return None if items else StepEnd(name, "done", "the list is empty")


def _items(db: Db, flow: int, step: Step, goes: str) -> list[Any] | None:
    """Return the items of the tasks of a step; nothing if it is skipped."""
    if not step.when and not goes:
        return [None]
    values = Values(db, records.head(db, flow))
    if step.when and not template.holds(step.when, values.look):
        return None
    if not goes:
        return [None]
    found = fill(text.load(goes), values.look)
    if not isinstance(found, list):
        message = f"`each` must be a list, and `{text.load(goes)}` is {text.dump(found)[:80]}"
        raise errors.BadFlow(
            message[:400], hint="an earlier step must produce the list as its result"
        )
    check.length(found)
    return found


def _words(error: errors.PilotageError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message


def tasks_done(db: Db, flow: int, step: str, count: int, now: float) -> FlowEnd | None:
    """Count tasks of a step that ended well, and end the step with the last one."""
    row = db.row(
        "flow_step_tasks_over", flow=flow, step=step, count=count, failed=0, off=0, reason=""
    )
    if row is None or row[0]:
        return None
    return settle(db, flow, [_last(db, flow, step, row)], now)


def task_over(
    db: Db, task: int, facts: tuple[Any, ...], state: str, reason: str, now: float
) -> FlowEnd | None:
    """Record that a task is over, and with the last one its step."""
    flow, name = facts[0], facts[1]
    db.run("flow_task_end", task=task, state=state, reason=reason, now=now)
    note(db, now, flow, state, reason, step=name, task=task, number=facts[4])
    failed = state == "failed"
    row = db.row(
        "flow_step_tasks_over", flow=flow, step=name, count=1, failed=int(failed),
        off=int(state == "cancelled"), reason="" if state == "done" else reason,
    )  # fmt: skip
    if row is None:
        return None
    if not row[0]:
        return settle(db, flow, [_last(db, flow, name, row)], now)
    if failed:
        _first_failure(db, flow, name, row[1] - 1, reason, now)
    return None
