"""Workflows that ended long ago are forgotten, and nothing of them stays but their keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.base import errors
from pilotage.flow import moves, records
from pilotage.flow.model import AttemptEnd, Flow, NewFlow, Step
from pilotage.flow.orders import start_child
from pilotage.store import sqlite
from pilotage.store.sqlite import Db

TABLES = (
    "flow", "flow_text", "flow_step", "flow_spec", "flow_edge", "flow_task", "flow_attempt",
    "flow_journal", "flow_file", "flow_resend", "flow_outbox",
)  # fmt: skip


def submit(db: Db, key: str) -> int:
    inner = Flow(name="inner", steps={"x": Step(application="app", sites=("y",))})
    steps = {"a": Step(flow=inner), "b": Step(application="app", sites=("y",), needs=("a",))}
    return moves.submit(db, NewFlow(flow=Flow(name="f", steps=steps), key=key, owner="me"), 1.0)


def run(db: Db) -> None:
    """Do all that there is to do."""
    for _ in range(3):
        for task in records.queued(db, 5.0):
            if start_child(db, task, 5.0) is None:
                number = moves.attempt(db, task, "edge", "y", "", 5.0)
                moves.end(db, task, number, AttemptEnd(state="done"), 5.0)


def rows(db: Db) -> dict[str, int]:
    found = {}
    for one in TABLES:
        query = f"SELECT count(*) FROM {one}"  # noqa: S608 - names of tables
        ((found[one],),) = db._connection.execute(query)
    return found


def test_all_of_a_flow_is_forgotten_and_its_key_is_not() -> None:
    db = sqlite.connect(Path(":memory:"))
    submit(db, "old")
    run(db)
    assert {one.state for one in records.flows(db)} == {"done"}
    # Its data is still there, then being removed, then gone.
    assert records.forget(db, 10.0) is None
    db._connection.execute("UPDATE flow SET cleared = 6.0")
    db._connection.execute("INSERT INTO flow_clearing (flow) VALUES (1)")
    assert records.forget(db, 10.0) is None
    db._connection.execute("DELETE FROM flow_clearing")
    assert records.forget(db, 4.0) is None
    live = submit(db, "live")
    mine = rows(db)
    assert records.forget(db, 10.0) == []
    assert records.forget(db, 10.0) is None
    left = rows(db)
    assert [one.id for one in records.flows(db)] == [live]
    assert left["flow"] == 1
    assert left["flow_task"] == 1
    assert left["flow_attempt"] == 0
    assert all(left[one] < mine[one] for one in TABLES[:8])
    with pytest.raises(errors.Conflict, match="was removed"):
        submit(db, "old")
