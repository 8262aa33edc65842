"""Messages in the store of an agent: each job once, each change told, refusals kept once."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.agent import admission, records
from pilotage.agent.admission import Ingested, store_messages
from pilotage.agent.app.model import AppLimits
from pilotage.agent.model import JudgedMessage
from pilotage.agent.registry import Registry
from pilotage.agent.settings import RunningLimits as Caps
from pilotage.agent.settings import Settings
from pilotage.base import text
from pilotage.job import moves, purge, retry
from pilotage.job import records as jobs
from pilotage.job.model import State
from pilotage.job.moves import EndedJob
from tests.rigs.broker import agent_parts
from tests.rigs.broker.agent_parts import Store

SETTINGS = agent_parts.settings()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    few = agent_parts.app(limits=AppLimits(jobs=2))
    with agent_parts.store(tmp_path, sim=agent_parts.app(), few=few) as made:
        yield made


def post(
    store: Store, *bodies: bytes, user: str = "alice", again: bool = False,
    settings: Settings = SETTINGS, now: float = 1000.0,
) -> Ingested:  # fmt: skip
    find = Registry(store.root).find
    arrivals = [
        JudgedMessage(user, "job.mira", one, admission.judge(one, user, find, settings), again)
        for one in bodies
    ]
    return store.writer.do(lambda db: store_messages(db, arrivals, settings, now))


def said(store: Store) -> list[tuple[int, int, str, str]]:
    return [(one.job, one.seq, one.state, one.step) for one in store.words() if one.job]


def claim(store: Store, *numbers: int) -> None:
    holders = dict.fromkeys(numbers, "site:mira")
    store.writer.do(lambda db: moves.claim(db, holders, "/x", 1001.0, State.STAGING_IN))


def test_a_message_is_a_job_with_its_first_word(store: Store):
    assert post(store, agent_parts.body(name="my {job}")).new == 1
    (job,) = store.jobs()
    assert (job.state, job.name, job.owner) == (State.QUEUED, "my {job}", "alice")
    assert said(store) == [(job.id, 1, "queued", "accept")]
    assert records.message(store.db, job.id).application == "sim"
    facts = records.facts(store.db, job.id)
    assert (facts.user, facts.application, facts.seq) == ("alice", "sim", 1)


def test_the_same_message_twice_is_one_job_that_is_told_again(store: Store):
    assert post(store, agent_parts.body(key="k")).new == 1
    found = post(store, agent_parts.body(key="k"), again=True)
    assert (found.new, found.again, found.refused) == (0, 1, 0)
    assert [seq for _, seq, _, _ in said(store)] == [1, 2]
    both = post(store, agent_parts.body(key="z"), agent_parts.body(key="z"))
    assert (both.new, both.again) == (1, 1)
    assert len(store.jobs()) == 2


def test_the_same_key_with_another_body_is_refused_with_the_reason(store: Store):
    post(store, agent_parts.body(key="k"))
    assert post(store, agent_parts.body(key="k", nodes=2)).refused == 1
    (told,) = store.said("status")
    assert (told["state"], told["job"], told["key"]) == ("rejected", 0, "k")
    assert told["reason"]["code"] == "conflict"
    assert "job 1" in told["reason"]["text"]
    assert len(store.jobs()) == 1


def test_another_users_key_is_no_conflict(store: Store):
    post(store, agent_parts.body(key="k"))
    assert post(store, agent_parts.body(key="k", nodes=2), user="bob").new == 1


def test_a_refused_message_is_kept_and_told_once_however_often_it_comes(store: Store):
    bad = agent_parts.body(key="k", nodes=100)
    post(store, bad)
    post(store, bad, again=True)
    (dead,) = records.refused(store.db, 10)
    assert (dead.user, dead.code, dead.count, dead.body) == ("alice", "limits", 2, bad)
    (letter,) = store.said("refused.mira")
    assert (letter["kind"], letter["user"], letter["size"]) == ("refusal", "alice", len(bad))
    assert "body" not in letter
    assert len(store.said("status.mira")) == 1
    post(store, bad)
    assert len(store.said("status.mira")) == 2
    assert len(store.said("refused.mira")) == 1


def test_a_key_that_was_refused_stays_refused_whatever_the_limits_are_then(store: Store):
    bad, unnamed = agent_parts.body(key="k", nodes=100), agent_parts.body(nodes=100)
    post(store, bad)
    post(store, unnamed)
    wide = agent_parts.app(limits=AppLimits(nodes=200))
    for body, refused in (
        (bad, 1),
        (bad, 1),
        (unnamed, 0),
        (agent_parts.body(key="l", nodes=100), 0),
    ):
        verdict = admission.judge(body, "alice", lambda _: wide, SETTINGS)
        one = JudgedMessage("alice", "job.mira", body, verdict, again=False)
        step = functools.partial(store_messages, arrivals=[one], settings=SETTINGS, now=2.0)
        assert store.writer.do(step).refused == refused
    assert [one["reason"]["code"] for one in store.said("status.mira")[:4]] == ["limits"] * 4
    assert len(store.jobs()) == 2


def test_a_large_message_is_not_kept_whole(store: Store):
    post(store, b"x" * 2_000_000)
    (dead,) = records.refused(store.db, 10)
    assert (dead.size, len(dead.body)) == (2_000_000, 4096)


def test_of_very_many_refused_ones_the_newest_are_kept(store: Store, monkeypatch: Any):
    monkeypatch.setattr(records, "_MOST_REFUSED", 3)
    for at in range(5):
        post(store, agent_parts.body(key=f"k{at}", nodes=100), now=float(at))
    store.writer.do(lambda db: records.forget_refused(db, 0.0))
    assert [one.time for one in records.refused(store.db, 10)] == [4.0, 3.0, 2.0]


def test_a_refused_one_hears_of_it_only_where_replies_may_go(store: Store):
    post(store, agent_parts.body(reply="control.mira", key="k"))
    assert [word.topic for word in store.words()] == ["refused.mira", "status.mira"]


def test_a_refused_definition_of_balsams_is_answered_in_its_words(store: Store):
    post(store, b'{"application": "sim", "site": "mira", "job_id": 9, "num_nodes": 77}')
    (told,) = store.said("balsam_job_status")
    assert told["job_id"] == 9
    assert "JOB_REJECTED" in told["serialized_job"]


def test_the_limit_of_an_application_counts_what_is_in_the_store(store: Store):
    bodies = [agent_parts.body(application="few", key=f"k{at}") for at in range(4)]
    found = post(store, *bodies)
    assert (found.new, found.refused) == (2, 2)
    first = jobs.get(store.db, 1)
    store.writer.do(lambda db: moves.cancel(db, first, now=1002.0))
    assert post(store, agent_parts.body(application="few", key="k9")).new == 1


# -- every change is told ------------------------------------------------------------------------


def test_a_person_at_the_site_cancels_and_the_sender_hears(store: Store):
    post(store, agent_parts.body())
    job = store.jobs()[0]
    store.writer.do(lambda db: moves.cancel(db, job, now=1002.0))
    assert said(store)[-1] == (1, 2, "cancelled", "accept")
    assert records.counts(store.db) == {"cancelled": 1}


def test_claims_and_ends_of_many_at_once_are_told(store: Store):
    post(store, *(agent_parts.body(key=f"k{at}") for at in range(3)))
    claim(store, 1, 2, 3)
    rows = [(number, 1) for number in (1, 2, 3)]
    for state in (State.SUBMITTED, State.RUNNING):
        store.writer.do(
            functools.partial(moves.progress, attempts=rows, state=state, reason="", now=4.0)
        )
    good = EndedJob(1, 1, 1, retry.AttemptEnd(ok=True, message="", exit=0), held=True)
    bad = EndedJob(2, 1, 1, retry.AttemptEnd(ok=False, message="exit code 3", exit=3), held=True)
    spec = jobs.get(store.db, 2).spec
    dice = random.Random(1)
    store.writer.do(
        lambda db: moves.finish_all(db, [good, bad], lambda _: spec, now=5.0, dice=dice)
    )
    assert [(seq, state, step) for job, seq, state, step in said(store) if job == 1] == [
        (1, "queued", "accept"), (2, "staging_in", "stage_in"), (3, "submitted", "queue"),
        (4, "running", "run"), (5, "done", "run"),
    ]  # fmt: skip
    assert [state for job, _, state, _ in said(store) if job == 2][-1] == "failed"
    assert records.counts(store.db) == {"done": 1, "failed": 1, "running": 1}


def test_a_step_is_told_where_no_state_changes(store: Store):
    post(store, agent_parts.body())
    claim(store, 1)
    store.writer.do(lambda db: records.step(db, 1, "preprocess", 1003.0))
    store.writer.do(lambda db: records.step(db, 1, "preprocess", 1004.0))
    assert said(store)[-1] == (1, 3, "staging_in", "preprocess")
    assert len(said(store)) == 3


def test_who_is_to_blame_is_said_of_one_change_only(store: Store):
    post(store, agent_parts.body())
    store.writer.do(lambda db: records.blame(db, 1, "credential", "expired"))
    store.writer.do(lambda db: moves.hold(db, jobs.get(db, 1), now=2.0))
    store.writer.do(lambda db: moves.release(db, jobs.get(db, 1), now=3.0))
    assert [(one.state, one.kind, one.code) for one in store.words()] == [
        ("queued", "", ""), ("held", "credential", "expired"), ("waiting", "", ""),
    ]  # fmt: skip


def test_what_is_forgotten_leaves_nothing_but_its_spent_key(store: Store):
    post(store, agent_parts.body(key="k"))
    store.writer.do(lambda db: moves.cancel(db, jobs.get(db, 1), now=2.0))
    assert store.writer.do(lambda db: purge.forget(db, 1e12)) is None, "it was not told yet"
    store.writer.do(lambda db: records.sent(db, [one.id for one in store.words()]))
    assert store.writer.do(lambda db: purge.forget(db, 1e12)) is not None
    assert records.counts(store.db) == {}
    assert records.owner_of(store.db, 1) is None
    assert post(store, agent_parts.body(key="k")).refused == 1
    assert store.said("status")[0]["reason"]["code"] == "forgotten"
    assert store.jobs() == []


def test_counts_are_those_of_the_jobs_whatever_happened(store: Store):
    dice = random.Random(7)
    caps = agent_parts.settings(limits=Caps(user=5, jobs=9))
    verbs: list[Any] = [moves.cancel, moves.hold, moves.release, moves.again]
    for turn in range(60):
        user = dice.choice(["alice", "bob", "carol"])
        post(store, agent_parts.body(key=f"k{turn}"), user=user, settings=caps)
        job = dice.choice(store.jobs())
        verb = dice.choice(verbs)

        def change(db: Any, job: Any = job, verb: Any = verb) -> None:
            try:
                verb(db, job, now=2.0)
            except Exception:  # noqa: BLE001 - not each can follow each
                return

        store.writer.do(change)
    found: dict[str, int] = {}
    for one in store.jobs():
        found[one.state] = found.get(one.state, 0) + 1
    assert records.counts(store.db) == found
    by_user = [records.counts(store.db, user) for user in ("alice", "bob", "carol")]
    assert sum(sum(one.values()) for one in by_user) == 60


def test_each_agent_has_a_number_of_its_own(store: Store):
    assert store.writer.do(lambda db: records.begin(db, 1.0)) == 1
    assert store.writer.do(lambda db: records.begin(db, 2.0)) == 2
    assert records.epoch(store.db) == 2


def test_what_the_batch_system_says_of_a_job_that_waits_is_told(store: Store):
    post(store, agent_parts.body())
    (job,) = store.jobs()
    claim(store, job.id)

    def say(words: str) -> None:
        rows = text.dump([(job.id, 1)])
        store.writer.do(lambda db: db.run("job_say", rows=rows, reason=words))

    say("before it is submitted")
    step = functools.partial(
        moves.progress, attempts=[(job.id, 1)], state=State.SUBMITTED, reason="", now=1002.0
    )
    store.writer.do(step)
    before = len(store.words())
    say("PENDING: PartitionTimeLimit")
    say("PENDING: PartitionTimeLimit")
    *_, last = store.words()
    assert len(store.words()) == before + 1
    assert (last.state, last.step, last.reason) == (
        "submitted", "queue", "PENDING: PartitionTimeLimit",
    )  # fmt: skip
    assert last.seq == records.facts(store.db, job.id).seq
    say("PENDING: Resources")
    assert store.words()[-1].seq == last.seq + 1
