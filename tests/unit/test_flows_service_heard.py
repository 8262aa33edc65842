"""What the workflow service makes of what sites say, word by word."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.bus import wire
from pilotage.bus.fields import State
from pilotage.bus.model import Answer, Result, Status
from pilotage.bus.port import Message
from pilotage.flow import moves, records
from pilotage.flow.model import Flow, NewFlow, Step
from pilotage.flow.records import AttemptRow
from pilotage.hub.flows import dispatch, ears, outbox, said, watch
from pilotage.hub.flows.dispatch import World
from pilotage.hub.flows.edge import Address
from pilotage.hub.flows.said import Said
from pilotage.hub.flows.watch import Patience
from pilotage.store import sqlite
from pilotage.store.sqlite import Db

MINE = Address("abcd1234")
PATIENCE = Patience(ask=10.0, silence=600.0)


@pytest.fixture
def db() -> Db:
    """Have an attempt at the site `mira` whose message was sent at 2."""
    made = sqlite.connect(Path(":memory:"))
    step = Step(sites=("mira",), application="x")
    moves.submit(made, NewFlow(flow=Flow(name="f", steps={"a": step}), key="k", owner="me"), 1.0)
    dispatch.look(made, World(MINE, bus=True), (), 1.0)
    outbox.sent(made, outbox.unsent(made, ("job",), 2.0, after=0, most=9), 2.0)
    return made


def only(db: Db) -> AttemptRow:
    found = records.attempts(db, 1)
    assert len(found) == 1
    return found[0]


def status(state: State, seq: int) -> Status:
    return Status(site="mira", job=7, key="abcd1234.flow.1.1.1", seq=seq, state=state, time=1.0)


def unknown() -> Answer:
    found = Result(key="abcd1234.flow.1.1.1", ok=False)
    return Answer(site="mira", time=1.0, verb="query", results=(found,))


def hear(db: Db, word: Status | Answer, now: float, user: str = "site") -> None:
    ears.hear(db, [Said(user, word)], MINE, now)


def test_an_answer_that_is_older_than_what_was_heard_since_is_not_believed(db: Db):
    """It may come again: whoever took it in was killed before the broker was told."""
    assert watch.ask(db, MINE, PATIENCE, 20.0) == 1
    hear(db, unknown(), 21.0)
    assert [one.kind for one in outbox.unsent(db, ("job",), 21.0, after=0, most=9)] == ["job"]
    hear(db, status("queued", 1), 22.0)
    hear(db, unknown(), 23.0)
    assert (only(db).state, only(db).ended) == ("queued", None)
    # What it knew before it was asked, and does not know now, is lost.
    assert watch.ask(db, MINE, PATIENCE, 40.0) == 1
    hear(db, unknown(), 41.0)
    assert (only(db).state, only(db).code) == ("lost", "forgotten")


def test_nobody_speaks_for_a_site_but_whom_its_heartbeats_come_from(db: Db):
    hear(db, status("queued", 1), 3.0, user="anybody")
    assert only(db).state == "queued"
    db.run(
        "edges_heard", name="mira", speaker="site", heard=3.0, state="well", since=3.0, gaps="[]",
        body="{}",
    )  # fmt: skip
    for user in ("mallory", ""):
        hear(db, status("done", 9), 4.0, user=user)
        hear(db, unknown(), 4.0, user=user)
    assert (only(db).state, only(db).ended) == ("queued", None)
    hear(db, status("done", 9), 5.0)
    assert only(db).ended == 5.0


async def _nobody(_: bytes) -> None:
    return


def test_what_nobody_understands_is_left_out(db: Db):
    good = wire.encode(status("running", 2))
    long = good.replace(b'"seq":2', b'"seq":3,"reason":{"text":"' + b"x" * 1_000_000 + b'"}')
    bodies = [b"", b"\xff" * 1000, b"[" * 100_000, b"{}", long, good]
    messages = [
        Message(topic="status.mira", body=body, key="", tag=at, reply=_nobody, user="site")
        for at, body in enumerate(bodies)
    ]
    assert [one.word for one in said.read(messages)] == [status("running", 2)]
    ears.hear(db, said.read(messages), MINE, 3.0)
    assert only(db).state == "running"
