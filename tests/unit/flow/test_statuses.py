"""What the workflow service makes of what becomes of its jobs at sites with an agent."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pilotage.base import errors
from pilotage.base.clock import dice
from pilotage.bus import wire
from pilotage.bus.fields import State as Said
from pilotage.bus.model import Answer, Heartbeat, Result, Status
from pilotage.bus.port import Message
from pilotage.edge import message, place, records, silence, statuses
from pilotage.edge.message import Handoff, HubIdentity
from pilotage.edge.silence import SilenceLimits
from pilotage.flow import dispatch, moves, rerun, step_job
from pilotage.flow import records as flows
from pilotage.flow.dispatch import HubCapabilities
from pilotage.flow.model import Flow, NewFlow, OnFailure, Step
from pilotage.flow.records import AttemptRow
from pilotage.flow.step_job import FlowSteps
from pilotage.job import moves as job_moves
from pilotage.job import records as jobs
from pilotage.job.model import State
from pilotage.store import sqlite
from pilotage.store.sqlite import Db

MINE = HubIdentity("abcd1234")
PATIENCE = SilenceLimits(ask=10.0, silence=600.0)
STEPS = FlowSteps()


def anywhere(_site: str) -> bool:
    return True


def begun(*sites: str, on_failure: OnFailure = "fail") -> Db:
    """Have an attempt whose job has just been made."""
    made = sqlite.connect(Path(":memory:"))
    step = Step(sites=sites, application="x", on_failure=on_failure)
    moves.submit(made, NewFlow(flow=Flow(name="f", steps={"a": step}), key="k", owner="me"), 1.0)
    dispatch.look(made, HubCapabilities(), (), 1.0)
    return made


def sent(db: Db) -> None:
    """Have the job at its site, whose message was sent at 2."""
    site = jobs.get(db, 1).spec.site
    job_moves.claim(db, {1: f"site:{site}"}, "/jobs", 1.0, State.STAGING_IN)
    records.add(db, (1, 1), site, Handoff(), b"{}", 1.0)
    records.sent(db, records.due(db, 2.0, 0, 9), 2.0)


@pytest.fixture
def db() -> Db:
    made = begun("mira")
    sent(made)
    return made


def only(db: Db) -> AttemptRow:
    (found,) = flows.attempts(db, 1)
    return found


def status(state: Said, seq: int) -> Status:
    return Status(site="mira", job=7, key="abcd1234.job.1.1", seq=seq, state=state, time=1.0)


def unknown() -> Answer:
    found = Result(key="abcd1234.job.1.1", ok=False)
    return Answer(site="mira", time=1.0, verb="query", results=(found,))


def listen(db: Db, word: Status | Answer, now: float, user: str = "site") -> None:
    """Hear a word as the service of sites and the place do, and then the workflow."""
    words = [word] if any(statuses.own(db, [statuses.ReceivedWord(user, word)])) else []
    for row in statuses.hear(db, words, MINE, now, STEPS):
        end = msgspec.structs.replace(place.ending(row, ""), lost=False)
        job_moves.finish(db, row.job, row.number, jobs.get(db, row.job).spec, end, now=now,
                         dice=dice())  # fmt: skip
    step_job.news(db, now)


def test_an_answer_that_is_older_than_what_was_heard_since_is_not_believed(db: Db):
    """It may come again: whoever took it in was killed before the broker was told."""
    assert silence.ask(db, MINE, PATIENCE, 20.0, anywhere) == 1
    listen(db, unknown(), 21.0)
    assert "job" in [one.kind for one in records.due(db, 21.0, 0, 9)]
    listen(db, status("submitted", 1), 22.0)
    listen(db, unknown(), 23.0)
    assert (only(db).state, only(db).ended) == ("submitted", None)
    # What it knew before it was asked, and does not know now, is lost.
    assert silence.ask(db, MINE, PATIENCE, 40.0, anywhere) == 1
    listen(db, unknown(), 41.0)
    assert (only(db).state, only(db).code) == ("lost", "forgotten")


def test_nobody_speaks_for_a_site_but_whom_its_heartbeats_come_from(db: Db):
    listen(db, status("running", 1), 3.0, user="anybody")
    assert only(db).state == "running"
    heartbeat(db, "mira", "well")
    for user in ("mallory", ""):
        listen(db, status("done", 9), 4.0, user=user)
        listen(db, unknown(), 4.0, user=user)
    assert (only(db).state, only(db).ended) == ("running", None)
    listen(db, status("done", 9), 5.0)
    assert only(db).ended == 5.0


def heartbeat(db: Db, site: str, state: str, *applications: str) -> None:
    beat = Heartbeat(site=site, time=1.0, version="1", applications=applications or ("x",))
    db.run(
        "edges_heard", name=site, speaker="site", heard=3.0, state=state, since=3.0, gaps="[]",
        body=wire.encode(beat).decode(),
    )  # fmt: skip


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
    assert [one.word for one in statuses.read(messages)] == [status("running", 2)]


def test_an_application_that_the_site_does_not_have_is_refused_at_once():
    db = begun("mira")
    assert jobs.get(db, 1).state is State.QUEUED, "nothing is known of the site"
    heartbeat(db, "mira", "well", "xx", "other")
    number = moves.submit(
        db, NewFlow(flow=Flow(name="g", steps={"a": Step(sites=("mira",), application="x")}),
                    key="l", owner="me"), 1.0
    )  # fmt: skip
    dispatch.look(db, HubCapabilities(), (), 5.0)
    step_job.news(db, 5.0)
    (task,) = flows.tasks(db, number)
    assert (task.state, flows.attempts(db, task.id)[0].state) == ("failed", "rejected")
    assert task.reason.startswith("site `mira` has no application `x`; did you mean `xx`?")
    assert "xx" in task.reason


def test_an_application_that_a_site_turns_out_not_to_have_is_refused_then():
    db = begun("mira")
    STEPS.offered(db, "theta", ("other",), 4.0)
    STEPS.offered(db, "mira", ("other", "x"), 4.0)
    assert jobs.get(db, 1).state is State.QUEUED
    STEPS.offered(db, "mira", ("other",), 5.0)
    step_job.news(db, 5.0)
    assert (only(db).state, only(db).reason) == (
        "rejected", "site `mira` has no application `x`; it has `other`"
    )  # fmt: skip


def test_the_job_of_a_step_that_failed_is_retried_by_its_workflow(db: Db):
    with pytest.raises(errors.IllegalTransition, match="has not ended"):
        rerun.retry(db, jobs.get(db, 1), now=3.0)
    listen(db, status("failed", 2), 4.0)
    assert flows.flow(db, 1).state == "failed"
    assert rerun.retry(db, jobs.get(db, 1), now=5.0) is State.QUEUED
    assert (flows.flow(db, 1).state, jobs.get(db, 1).state) == ("running", State.FAILED)
    dispatch.look(db, HubCapabilities(), (), 6.0)
    assert [(one.number, one.job) for one in flows.attempts(db, 1)] == [(1, 1), (2, 2)]
    with pytest.raises(errors.IllegalTransition, match="nothing of flow 1 failed"):
        rerun.retry(db, jobs.get(db, 1), now=7.0)


def test_a_step_that_may_run_elsewhere_leaves_a_silent_site():
    db = begun("mira", "theta", on_failure="other_site")
    sent(db)
    assert only(db).site == "mira"
    silence.ask(db, MINE, PATIENCE, 20.0, anywhere)
    silence.give_up(db, PATIENCE, 0.0, 700.0, anywhere, STEPS)
    assert (only(db).state, only(db).fenced) == ("lost", 1)
    assert step_job.cancel_unwanted(db, 701.0) == 1
    assert db.value("job_asked") == 1
    dispatch.look(db, HubCapabilities(), (), 701.0)
    assert [one.site for one in flows.attempts(db, 1)] == ["mira", "theta"]


@pytest.mark.parametrize("state, left", [("silent", True), ("well", False)])
def test_a_step_whose_job_waits_for_a_silent_site_leaves_it(*, state: str, left: bool):
    db = begun("mira", "theta", on_failure="other_site")
    heartbeat(db, "mira", state)
    silence.give_up(db, PATIENCE, 0.0, 700.0, anywhere, STEPS)
    assert (only(db).state == "lost") is left
    assert step_job.cancel_unwanted(db, 701.0) == int(left)
    assert (jobs.get(db, 1).state is State.CANCELLED) is left


def test_a_silent_site_is_waited_for_where_there_is_no_other(db: Db):
    silence.ask(db, MINE, PATIENCE, 20.0, anywhere)
    silence.give_up(db, PATIENCE, 0.0, 700.0, anywhere, STEPS)
    assert (only(db).state, only(db).ended) == ("queued", None)
    assert flows.task(db, 1).reason == "mira has been silent for 11 m 38 s"


def test_a_key_names_the_attempt_of_its_job(db: Db):
    assert message.attempt_key(1, 1) == "job.1.1"
    found = flows.by_site_key(db, "job.1.1")
    assert found == only(db) == flows.by_job(db, 1)
    assert flows.by_site_key(db, "job.1.2") is None
