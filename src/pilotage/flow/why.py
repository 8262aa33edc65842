"""Why the steps of a flow do not go on, in words: pure, from what was read of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from pilotage.base import units
from pilotage.flow import view as look
from pilotage.flow.model import FINAL, State
from pilotage.flow.view import Open, StepRow

#: Names of steps and reasons that are told at once.
_FEW = 3
_STAGES: Mapping[str, str] = {
    State.WAITING: "waits",
    State.QUEUED: "waits for a place",
    State.STAGING_IN: "gets its inputs",
    State.READY: "is ready",
    State.SUBMITTED: "waits in the queue of the batch system",
    State.RUNNING: "runs",
    State.STAGING_OUT: "sends its outputs",
    State.HELD: "is held",
    State.CANCELLING: "is being called off",
}


def steps(
    rows: Sequence[StepRow], tasks: Iterable[Open], silent: Mapping[str, str], now: float
) -> list[StepRow]:
    """Say of each step that is not over why; `silent` has words on sites that do not answer."""
    states = {one.name: one.state for one in rows}
    mine: dict[str, list[Open]] = {}
    for task in tasks:
        mine.setdefault(task.step, []).append(task)
    return [
        msgspec.structs.replace(
            one, why=step(one, states, mine.get(one.name, []), silent, now)
        )
        for one in rows
    ]  # fmt: skip


def step(
    one: StepRow,
    states: Mapping[str, str],
    tasks: Sequence[Open],
    silent: Mapping[str, str],
    now: float,
) -> str:
    """Say why a step does not go on, or how it ended."""
    if one.state in FINAL:
        return one.reason
    if one.state == State.WAITING:
        left = [name for name in one.needs if states.get(name) not in FINAL]
        return one.reason or (f"waits for {_names(left)}" if left else "is about to start")
    counts = Counter(task(each, silent, now) for each in tasks)
    if not counts:
        return one.reason
    if one.total == 1:
        words = next(iter(counts))
        # That it runs, and where, is told beside it.
        return "" if tasks[0].stage == State.RUNNING and ":" not in words else words
    told = [f"{count} {_plural(words, count)}" for words, count in counts.most_common(_FEW)]
    more = len(counts) - _FEW
    return "; ".join(told) + (f"; and {more} other reasons" if more > 0 else "")


def task(one: Open, silent: Mapping[str, str], now: float) -> str:
    """Say where a task is and what it waits for."""
    if one.way is None or one.state == State.QUEUED:
        return _queued(one, now)
    where = look.place(one.way, one.site)
    if (words := silent.get(where)) and one.way == "edge":
        return f"is at {where}: {words}"
    if one.way == "edge" and one.stage == State.READY and one.sent is None:
        return f"is on its way to {where}"
    if one.way == "edge" and one.sent is not None and one.heard is None:
        return f"was sent to {where}, which has not answered yet"
    stage = one.stage or one.state
    told = f"{_STAGES.get(stage, stage)} {'here' if where == look.HERE else f'at {where}'}"
    words = one.words or one.reason
    return f"{told}: {words}" if words and stage != State.RUNNING else told


def _queued(one: Open, now: float) -> str:
    left = one.not_before - now
    if left > 0 and one.way is not None:
        # Whole seconds, so that tasks which wait alike are told together.
        whole = max(1, round(left))
        again = f"is tried again in {units.for_people(whole) if whole >= 60 else f'{whole} s'}"
        return f"{again}: {one.reason}" if one.reason else again
    return f"waits to be sent: {one.reason}" if one.reason else "waits to be sent"


def _names(names: Sequence[str]) -> str:
    told = ", ".join(f"`{name}`" for name in names[:_FEW])
    more = len(names) - _FEW
    return f"{told} and {more} more" if more > 0 else told


def _plural(words: str, count: int) -> str:
    """Let a sentence about one speak of several."""
    if count == 1:
        return words
    first, _, rest = words.partition(" ")
    verb = {"is": "are", "was": "were", "gets": "get", "waits": "wait", "runs": "run",
            "sends": "send"}.get(first, first)  # fmt: skip
    return f"{verb} {rest}" if rest else verb
