"""How many jobs go on at once: no limit is ever passed, and nobody waits for another's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotage.agent import job_limits, records
from pilotage.agent.admission import judge, store_messages
from pilotage.agent.job_limits import ActiveJobs, JobLimits, grant
from pilotage.agent.model import JudgedMessage
from pilotage.agent.settings import RunningLimits
from pilotage.job import machine, moves
from pilotage.job import records as jobs
from pilotage.job.model import Job, State
from pilotage.job.retry import Next
from pilotage.store import Db
from tests.rigs.broker import agent_parts
from tests.rigs.broker.agent_parts import Store

USERS, QUEUES = ("alice", "bob", "carol"), ("", "long", "short")
GROUPS = st.tuples(st.sampled_from(USERS), st.sampled_from(QUEUES))
BOUND = st.integers(0, 4)
LIMITS = st.builds(
    RunningLimits, jobs=BOUND, user=BOUND, queue=BOUND,
    users=st.dictionaries(st.sampled_from(USERS), BOUND, max_size=2),
    queues=st.dictionaries(st.sampled_from(QUEUES), BOUND, max_size=2),
)  # fmt: skip


def passed(limits: RunningLimits, groups: Counter[tuple[str, str]]) -> list[str]:
    """Name the limits that are passed."""
    users, queues = Counter[str](), Counter[str]()
    for (user, queue), count in groups.items():
        users[user] += count
        queues[queue] += count
    found = ["all"] if 0 < limits.jobs < groups.total() else []
    found += [one for one, n in users.items() if 0 < limits.users.get(one, limits.user) < n]
    return found + [
        one for one, n in queues.items() if 0 < limits.queues.get(one, limits.queue) < n
    ]


@given(st.lists(GROUPS, max_size=30), st.lists(GROUPS, max_size=10), LIMITS)
def test_what_is_granted_fits_and_nothing_else_would(waits, goes, limits: RunningLimits):
    waiting: dict[tuple[str, str], list[int]] = {}
    for job, group in enumerate(waits):
        waiting.setdefault(group, []).append(job)
    before = Counter(goes)
    chosen = grant(waiting, ActiveJobs(before), limits)
    after = before + Counter(waits[job] for job in chosen)
    if not passed(limits, before):
        assert passed(limits, after) == []
    # No job that was left could have gone on, and of each group the oldest went.
    assert all(
        ActiveJobs(after).why_not(waits[job], limits)
        for job in set(range(len(waits))) - set(chosen)
    )
    for jobs_ in waiting.values():
        taken = [job for job in jobs_ if job in chosen]
        assert taken == jobs_[: len(taken)]


def test_one_users_jobs_do_not_keep_anothers_waiting():
    waiting = {("alice", ""): list(range(1000)), ("bob", ""): [5000]}
    assert grant(waiting, ActiveJobs({}), RunningLimits(user=2)) == [0, 1, 5000]


def test_no_limit_means_any_number():
    assert len(grant({("a", ""): list(range(300))}, ActiveJobs({}), RunningLimits())) == 300


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with agent_parts.store(tmp_path, sim=agent_parts.app()) as made:
        yield made


def post(db: Db, key: str, user: str, queue: str, limits: RunningLimits) -> None:
    known = agent_parts.settings(limits=limits)
    body = agent_parts.body(key=key, queue=queue)
    verdict = judge(body, user, lambda _: agent_parts.app(), known)
    store_messages(db, [JudgedMessage(user, "job.mira", body, verdict)], known, 1.0)


def over(db: Db, job: Job) -> None:
    """End a job as it may end from where it is."""
    if job.state is State.QUEUED:
        moves.move(db, job.id, job.attempt, State.QUEUED, Next(State.RUNNING, ""), now=2.0)
    elif job.state is State.RUNNING:
        moves.move(db, job.id, job.attempt, State.RUNNING, Next(State.DONE, ""), now=2.0)


VERBS = ("post", "post", "end", "hold", "release", "cancel", "retry", "look")
STEPS = st.lists(
    st.tuples(st.sampled_from(VERBS), GROUPS, st.integers(0, 1000)),
    max_size=40,
)  # fmt: skip


def change(db: Db, job: Job, verb: str) -> None:
    """Do something to a job, if that can follow from where it is."""
    match verb:
        case "end":
            over(db, job)
        case "hold" if State.HELD in machine.TRANSITIONS[job.state]:
            moves.hold(db, job, now=2.0)
        case "release" if job.state is State.HELD:
            moves.release(db, job, now=2.0)
        case "cancel" if State.CANCELLED in machine.TRANSITIONS[job.state]:
            moves.cancel(db, job, now=2.0)
        case "retry" if job.state in machine.FINAL and job.state is not State.DONE:
            moves.again(db, job, now=2.0)
        case _:
            pass


def going(store: Store) -> Counter[tuple[str, str]]:
    """Count the jobs that go on, one by one."""
    still = {State.WAITING, State.HELD} | machine.FINAL
    some = [records.facts(store.db, one.id) for one in store.jobs() if one.state not in still]
    return Counter((facts.user, facts.queue) for facts in some)


@settings(max_examples=60, deadline=None)
@given(STEPS, LIMITS)
def test_no_limit_is_passed_whatever_people_do(tmp_path_factory, steps, limits: RunningLimits):
    with agent_parts.store(tmp_path_factory.mktemp("s")) as store:
        for at, (verb, (user, queue), pick) in enumerate(steps):
            known = store.jobs()
            if verb == "post":
                store.writer.do(partial(post, key=f"k{at}", user=user, queue=queue, limits=limits))
            elif verb == "look":
                store.writer.do(partial(job_limits.settle, limits=limits, now=3.0))
            elif known:
                store.writer.do(partial(change, job=known[pick % len(known)], verb=verb))
            assert passed(limits, going(store)) == []
        store.writer.do(partial(job_limits.settle, limits=limits, now=3.0))
        final = ActiveJobs(going(store))
        for one in store.jobs():
            if one.state is State.WAITING:
                facts = records.facts(store.db, one.id)
                assert final.why_not((facts.user, facts.queue), limits)


def test_a_job_waits_in_words_and_goes_on_by_itself(store: Store):
    known = agent_parts.settings(limits=RunningLimits(user=1))
    poked = anyio.Event()

    async def story() -> None:
        for at in range(3):
            one = partial(post, key=f"k{at}", user="alice", queue="", limits=known.limits)
            store.writer.do(one)
        assert [one.state for one in store.jobs()] == ["queued", "waiting", "waiting"]
        assert "1 jobs of alice run; the limit is 1" in store.jobs()[1].reason
        async with anyio.create_task_group() as tasks:
            look = JobLimits(store.writer, lambda: known, lambda: 9.0, poked.set, lambda *_: 0)
            tasks.start_soon(look.run)
            store.writer.do(lambda db: moves.cancel(db, jobs.get(db, 1), now=2.0))
            with anyio.fail_after(20):
                await poked.wait()
            tasks.cancel_scope.cancel()

    anyio.run(story)
    assert [one.state for one in store.jobs()] == ["cancelled", "queued", "waiting"]


def test_a_look_takes_as_long_with_many_jobs_as_with_few(store: Store):
    known = agent_parts.settings(limits=RunningLimits(user=1))
    for at in range(400):
        user = USERS[at % 2]
        # All of them in a few transactions.
        store.writer.submit(partial(post, key=f"k{at}", user=user, queue="", limits=known.limits))
    store.writer.do(lambda _: None)
    rows = store.db.rows("edge_waiting_groups")
    assert sorted(rows) == [("alice", "", 199), ("bob", "", 199)]
    assert store.writer.do(lambda db: job_limits.settle(db, known.limits, 2.0))[1] == 0
