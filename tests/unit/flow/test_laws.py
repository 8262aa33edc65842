"""Whatever happens to a workflow, in whatever order: what must hold holds after each thing."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.flow import moves, records
from pilotage.flow.model import FINAL, AttemptEnd, Flow, NewFlow, Step
from pilotage.flow.moves import OVER
from pilotage.flow.orders import make_order, start_child
from pilotage.flow.rerun import rerun, stale
from pilotage.store import sqlite
from pilotage.store.sqlite import Db

_KEYS = itertools.count()
_LIVE = frozenset({"waiting", "running"})


@pytest.fixture(scope="module")
def db() -> Db:
    return sqlite.connect(Path(":memory:"))


@st.composite
def flows(draw: st.DrawFn, depth: int = 0) -> Flow:
    steps: dict[str, Step] = {}
    for number in range(draw(st.integers(1, 6))):
        before = draw(st.sets(st.sampled_from(sorted(steps)), max_size=3)) if steps else set()
        each: Any = draw(st.sampled_from([None, None, None, [], [1], [1, "b", {"c": 3}]]))
        if before and draw(st.integers(0, 5)) == 0:
            each = f"{{{min(before)}.result.list}}"
        inner = draw(flows(depth=1)) if depth == 0 and draw(st.integers(0, 7)) == 0 else None
        steps[f"s{number}"] = Step(
            needs=tuple(sorted(before)),
            application="" if inner else "app",
            flow=inner,
            sites=draw(st.sampled_from([(), ("x",), ("x", "y", "z")])),
            each=each,
            when=draw(st.sampled_from(["", "", "", "", "yes", "not yes"])),
            on_failure=draw(st.sampled_from(["fail", "continue", "retry", "other_site"])),
            retries=draw(st.integers(0, 2)),
            delay=0.0,
        )
    return Flow(
        name="f",
        params={"yes": True},
        steps=steps,
        to=draw(st.sampled_from(["", "", "file:///there/"])),
        retries=draw(st.integers(0, 6)),
    )


_OPS = (
    "send", "send", "send", "send", "hear", "done", "done", "done", "done", "failed", "lost",
    "rejected", "late", "cancel", "fence", "rerun", "stale", "stale", "deliver", "cancelled",
    "last", "give_up", "fence_flow",
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(
    flow=flows(), seed=st.integers(0, 2**32), count=st.integers(0, 60)
)  # fmt: skip
def test_laws_hold_whatever_happens(db: Db, flow: Flow, seed: int, count: int) -> None:
    number = moves.submit(db, NewFlow(flow=flow, key=f"k{next(_KEYS)}", owner="me"), 1.0)
    world = _World(db, number)
    world.check()
    dice = random.Random(seed)
    for _ in range(count):
        world.do(dice.choice(_OPS), dice.randrange(1000))
        world.check()
    world.drain()
    assert records.flow(db, number).state in FINAL
    assert not world.live()


def _one(found: list[Any], pick: int) -> list[Any]:
    """Choose one, if there is any."""
    return [found[pick % len(found)]] if found else []


class _World:
    """Does things to a flow as sites, people and broken networks would."""

    def __init__(self, db: Db, flow: int) -> None:
        self.db = db
        self.flow = flow
        self.now = 10.0

    def flows(self) -> list[int]:
        """Return the flow and those within it, however deep."""
        found = [self.flow]
        for one in found:
            for task in records.tasks(self.db, one):
                rows = records.attempts(self.db, task.id) if task.attempt else []
                found += [row.job for row in rows if row.way == "flow" and row.job is not None]
        return found

    def tasks(self, *states: str) -> list[records.TaskRow]:
        return [
            task for flow in self.flows() for task in records.tasks(self.db, flow, states=states)
        ]

    def attempts(self) -> list[records.AttemptRow]:
        return [one for task in self.tasks() for one in records.attempts(self.db, task.id)]

    def live(self) -> list[records.AttemptRow]:
        return [one for one in self.attempts() if one.ended is None and not one.fenced]

    def do(self, name: str, pick: int) -> None:  # noqa: C901, PLR0912 - one line each
        self.now += 1
        match name:
            case "send":
                for task in _one(self.tasks("queued"), pick):
                    self.send(task.id)
            case "cancel":
                for flow in _one(self.flows(), pick) if pick % 6 == 0 else []:
                    moves.cancel(self.db, flow, "enough", self.now)
            case "deliver":
                for flow in _one(self.flows(), pick):
                    moves.delivered(self.db, flow, self.now, "no room" if pick % 5 == 0 else "")
            case "rerun":
                self.rerun(pick)
            case "stale":
                for task in _one(self.tasks("done"), pick):
                    readers = self.readers(task) if pick % 2 else []
                    stale(self.db, task.id, self.now, consumer=(*readers, 0)[0])
            case "give_up":
                for task in _one(self.tasks("queued"), pick) if pick % 4 == 0 else []:
                    moves.give_up(self.db, task.id, "no such thing", self.now)
            case "fence_flow":
                for one in _one([one for one in self.live() if one.way == "flow"], pick):
                    assert moves.fence(self.db, one.task, self.now, "enough") == one.number
            case "late":
                for one in _one([one for one in self.attempts() if one.ended is not None], pick):
                    self.late(one)
            case _:
                for one in _one([one for one in self.live() if one.way != "flow"], pick):
                    self.word(name, one, pick)

    def readers(self, task: records.TaskRow) -> list[int]:
        """Return tasks under way that may read what a task has left."""
        after = {two for one, two in records.edges(self.db, task.flow) if one == task.step}
        live = {one.task for one in self.live() if one.way != "flow"}
        rows = records.tasks(self.db, task.flow)
        return [row.id for row in rows if row.step in after and row.id in live]

    def send(self, task: int) -> None:
        row = records.task(self.db, task)
        needs = {before for before, after in records.edges(self.db, row.flow) if after == row.step}
        states = {step.name: step.state for step in records.steps(self.db, row.flow)}
        assert all(states[one] not in _LIVE for one in needs), "it begins before its needs are over"
        asked = make_order(self.db, task, self.now)
        if asked is None:
            assert records.task(self.db, task).state == "failed"
        elif asked.definition.flow is not None:
            start_child(self.db, task, self.now)
        else:
            site = (*asked.definition.sites, "any")[0]
            number = moves.attempt(self.db, task, "edge", site, "", self.now)
            assert (number, asked.key) == (asked.number, f"flow.{row.flow}.{task}.{number}")
            with pytest.raises(errors.IllegalTransition):
                moves.attempt(self.db, task, "edge", site, "", self.now)

    def word(self, name: str, one: records.AttemptRow, pick: int) -> None:
        if name == "last":
            # The last word of a site, before anybody has looked at what the attempt left.
            last = ["done", "failed", "cancelled", "lost", "rejected"][pick % 5]
            moves.hear(self.db, one.key, one.seq + 1, last, "", "", "", self.now)
        elif name == "hear" and one.state not in OVER:
            seq = one.seq + 1 + pick % 3
            state = ["queued", "staging_in", "submitted", "running", "held"][pick % 5]
            assert moves.hear(self.db, one.key, seq, state, "", "", "", self.now)
            before = records.task(self.db, one.task)
            for old in (seq, seq - 1):
                assert not moves.hear(self.db, one.key, old, "failed", "", "", "", self.now)
            assert records.task(self.db, one.task) == before
        elif name == "hear":
            assert not moves.hear(self.db, one.key, one.seq + 1, "held", "", "", "", self.now)
        elif name == "fence":
            assert moves.fence(self.db, one.task, self.now, "silent") == one.number
        else:
            state = name if name in OVER else "failed"
            how = AttemptEnd(state=state, reason=f"it was {name}", kind="application")  # type: ignore[arg-type]
            result = {"list": [1, 2]} if pick % 3 else None
            assert moves.end(self.db, one.task, one.number, how, self.now, result=result)
            assert not moves.end(self.db, one.task, one.number, how, self.now)

    def late(self, one: records.AttemptRow) -> None:
        """Let an attempt speak again that is over: nothing may come of it."""
        before = records.task(self.db, one.task), records.flow(self.db, self.flow)
        assert not moves.hear(self.db, one.key, one.seq + 9, "done", "", "", "", self.now)
        assert not moves.end(self.db, one.task, one.number, AttemptEnd(state="done"), self.now)
        assert before == (records.task(self.db, one.task), records.flow(self.db, self.flow))

    def rerun(self, pick: int) -> None:
        steps = records.steps(self.db, self.flow)
        names = [steps[pick % len(steps)].name] if pick % 2 else []
        try:
            rerun(self.db, self.flow, names, self.now)
        except errors.IllegalTransition:
            state = records.flow(self.db, self.flow).state
            assert state in ("cancelling", "staging_out") or not names

    def drain(self) -> None:
        """Let everything end."""
        for _ in range(2000):
            self.now += 1
            queued, live = self.tasks("queued"), [a for a in self.live() if a.way != "flow"]
            given = [moves.delivered(self.db, flow, self.now) for flow in self.flows()]
            if not queued and not live and not any(given):
                break
            for task in queued:
                # One end may be that of a whole flow: what was queued need not be any more.
                if records.task(self.db, task.id).state == "queued":
                    self.send(task.id)
            for one in self.live():
                if one.way != "flow":
                    moves.end(self.db, one.task, one.number, AttemptEnd(state="done"), self.now)
            self.check()

    def check(self) -> None:
        for flow in self.flows():
            self.check_flow(flow)

    def check_flow(self, number: int) -> None:
        flow, steps = records.flow(self.db, number), records.steps(self.db, number)
        body = records.definition(self.db, number)
        states = {one.name: one.state for one in steps}
        assert flow.open == sum(state in _LIVE for state in states.values())
        assert flow.failed == sum(
            state == "failed" and body.steps[name].on_failure != "continue"
            for name, state in states.items()
        )
        assert (flow.state in FINAL | {"staging_out"}) == (flow.open == 0)
        assert (flow.state in FINAL) == (flow.ended is not None)
        assert 0 <= flow.budget <= body.retries
        tasks = records.tasks(self.db, number)
        for step in steps:
            mine = [task for task in tasks if task.step == step.name and task.item < step.total]
            self.check_step(step, body.steps[step.name], states, mine)
        for task in tasks:
            live = [
                one for one in records.attempts(self.db, task.id)
                if one.ended is None and not one.fenced
            ]  # fmt: skip
            assert len(live) <= 1
            assert all(one.number == task.attempt for one in live)
            assert bool(live) == (task.state not in FINAL | {"queued", "waiting"})
            assert not live or states[task.step] == "running"

    def check_step(
        self, step: records.StepRow, body: Step, states: dict[str, str], tasks: list[Any]
    ) -> None:
        if step.state in ("skipped", "failed", "cancelled"):
            assert step.reason, step
        if step.state == "waiting":
            assert step.unmet == sum(states[one] in _LIVE for one in body.needs) > 0
            return
        if step.state == "running":
            assert step.open > 0
        if step.total:
            assert len(tasks) == step.total
            assert step.open == sum(task.state not in FINAL for task in tasks)
            assert step.failed == sum(task.state == "failed" for task in tasks)
            assert step.off == sum(task.state == "cancelled" for task in tasks)
