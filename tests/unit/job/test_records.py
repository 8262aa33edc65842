"""Jobs in a real store: made, read, chosen, claimed, ended, stopped, told of, and forgotten."""

from __future__ import annotations

import contextlib
import fnmatch
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.base.owner import me
from pilotage.job import moves, purge, records, retry
from pilotage.job.model import Binding, Command, Job, JobSpec, NewJob, Retry, State
from pilotage.store import Db, connect

OK = retry.AttemptEnd(ok=True, message="", exit=0, cpu=0.5, wall=1.5, max_rss=7)
BAD = retry.AttemptEnd(ok=False, message="exit code 3", exit=3)


@pytest.fixture
def db(tmp_path) -> Iterator[Db]:
    opened = connect(tmp_path / "store.db")
    with opened.transaction():
        yield opened
    opened.close()


class Undo(Exception):
    pass


@contextlib.contextmanager
def undone(db: Db) -> Iterator[None]:
    """Undo what an example did: all of them share a store."""
    with contextlib.suppress(Undo), db.savepoint():
        yield
        raise Undo


def new(name: str = "fit", **facts: Any) -> NewJob:
    spec = {key: facts.pop(key) for key in ("retry", "priority") if key in facts}
    return NewJob(JobSpec(Command(("fit", "{path}")), name, **spec), **facts)


def add(db: Db, name: str = "fit", now: float = 10.0, **facts: Any) -> int:
    job = records.add(db, new(name, **facts), now)
    assert job is not None
    return job


def start(db: Db, *jobs: int, now: float = 20.0) -> list[int]:
    return list(moves.claim(db, dict.fromkeys(jobs, "/s"), "/jobs", now))


def end(db: Db, job: int, how: retry.AttemptEnd = OK, attempt: int | None = None) -> State:
    one = records.get(db, job)
    number = one.attempt if attempt is None else attempt
    moves.finish(db, job, number, one.spec, how, now=30.0, dice=random.Random(0))
    return records.get(db, job).state


def run(db: Db, job: int, how: retry.AttemptEnd = OK) -> State:
    assert start(db, job, now=1000.0) == [job]
    return end(db, job, how)


def state(db: Db, job: int) -> State:
    return records.get(db, job).state


def story(db: Db, job: int) -> list[tuple[int, str]]:
    return [(attempt, state) for _, attempt, state, _ in db.rows("journal_of", job=job)]


# -- adding and reading --------------------------------------------------------------------------


def test_a_job_is_read_as_it_was_made(db):
    binding = Binding(path="/d/\udcff.csv", match={"scan": "\udcfe"}, sweep={"level": 2})
    made = new("clean", binding=binding, key="k", priority=3, not_before=12.0,
               limit_key="cam:1", parent=5, depth=2, tag="beam", retry=Retry(4))  # fmt: skip
    job = records.add(db, made, 10.0, rule="clean", event=9)
    assert job == 1
    assert records.get(db, job) == Job(
        id=1, name="clean", state=State.QUEUED, reason="", spec=made.spec, binding=binding,
        attempt=0, priority=3, not_before=12.0, limit_key="cam:1", created=10.0, started=None,
        ended=None, rule="clean", event=9, parent=5, depth=2, tag="beam", owner=me(),
    )  # fmt: skip
    assert db.rows("journal_of", job=job) == [(10.0, 0, "queued", "")]


def test_the_same_key_makes_one_job_and_no_key_makes_many(db):
    first = add(db, key="k")
    assert records.add(db, new(key="k"), 2.0) is None
    jobs = [first, add(db), add(db), add(db, key="other")]
    assert [one.id for one in records.find(db, records.Selection())] == jobs


def test_jobs_of_one_definition_share_it(db):
    one, other = new("a").spec, new("b").spec
    assert records.intern(db, one) == records.intern(db, new("a").spec)
    assert records.intern(db, one) != records.intern(db, other)


def test_no_job_is_said_by_its_number(db):
    with pytest.raises(errors.NotFound, match="no job 7") as caught:
        records.get(db, 7)
    assert "pilotage job ls" in caught.value.hint


JOBS = st.lists(
    st.tuples(
        st.sampled_from(["fit", "clean", "cleaner", "x[1]"]),
        st.sampled_from([State.QUEUED, State.HELD, State.WAITING]),
        st.sampled_from(["", "a", "b"]),
        st.integers(0, 5),
    ),
    max_size=8,
)
SELECTIONS = st.builds(
    records.Selection,
    first=st.integers(0, 9),
    last=st.integers(0, 9),
    states=st.lists(st.sampled_from([State.QUEUED, State.HELD, State.DONE]), max_size=2).map(tuple),
    name=st.sampled_from(["*", "clean*", "f?t", "x[[]1]", "nothing"]),
    tag=st.sampled_from(["", "a"]),
    since=st.sampled_from([0.0, 3.0]),
    most=st.integers(0, 9),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(JOBS, SELECTIONS)
def test_a_selection_finds_what_it_says_and_nothing_else(db, jobs, which):
    with undone(db):
        for name, first_state, tag, now in jobs:
            add(db, name, float(now), state=first_state, tag=tag)
        wanted = [
            number
            for number, (name, first_state, tag, now) in enumerate(jobs, 1)
            if which.first <= number <= which.last
            and (not which.states or first_state in which.states)
            and fnmatch.fnmatchcase(name, which.name)
            and which.tag in ("", tag)
            and now >= which.since
        ]
        newest = wanted[-which.most :] if which.most else []
        assert [one.id for one in records.find(db, which)] == newest


# -- dependencies --------------------------------------------------------------------------------


def test_a_job_waits_for_all_its_predecessors(db):
    one, two = add(db), add(db)
    after = add(db, after=(one, two))
    assert (state(db, after), records.get(db, after).reason) == (
        State.WAITING, "waits for job 1, job 2"
    )  # fmt: skip
    run(db, one)
    assert state(db, after) is State.WAITING
    run(db, two)
    assert state(db, after) is State.QUEUED
    assert story(db, after) == [(0, "waiting"), (0, "queued")]


def test_who_follows_what_is_done_need_not_wait(db):
    one = add(db)
    run(db, one)
    assert state(db, add(db, after=(one, one))) is State.QUEUED


def test_who_follows_what_ended_badly_is_cancelled_down_the_chain(db):
    one = add(db)
    two = add(db, after=(one,))
    three = add(db, after=(two,))
    run(db, one, BAD)
    assert [state(db, job) for job in (one, two, three)] == [
        State.FAILED, State.CANCELLED, State.CANCELLED
    ]  # fmt: skip
    assert records.get(db, three).reason == "job 2, which it was to follow, is cancelled"
    late = add(db, after=(one,))
    assert state(db, late) is State.CANCELLED
    assert "job 1, which it was to follow, is failed" in records.get(db, late).reason
    assert records.get(db, late).ended == 10.0


def test_nobody_can_follow_a_job_that_is_not(db):
    with pytest.raises(errors.NotFound, match="no job 99 to wait for"):
        records.add(db, new(after=(99,)), 1.0)


# -- attempts ------------------------------------------------------------------------------------


def test_a_claim_starts_an_attempt(db):
    job = add(db)
    assert start(db, job) == [job]
    one = records.get(db, job)
    assert (one.state, one.attempt, one.started) == (State.RUNNING, 1, 20.0)
    (attempt,) = records.attempts(db, job)
    assert (attempt.number, attempt.state, attempt.dir) == (1, "running", "/jobs/0000/1.1")
    assert story(db, job) == [(0, "queued"), (1, "running")]


def test_the_second_of_two_claims_loses(db):
    job = add(db)
    assert (start(db, job), start(db, job)) == ([job], [])
    assert len(records.attempts(db, job)) == 1


@pytest.mark.parametrize("stop", [moves.cancel, moves.hold])
def test_a_job_that_was_stopped_meanwhile_is_not_claimed(db, stop):
    job = add(db)
    stop(db, records.get(db, job), now=1.0)
    assert start(db, job) == []
    assert records.attempts(db, job) == []


def test_the_end_of_an_attempt_is_recorded_with_what_it_used(db):
    job = add(db)
    start(db, job, now=1000.0)
    moves.note_pids(db, {f"{job}.1": 4711})
    assert end(db, job) is State.DONE
    (attempt,) = records.attempts(db, job)
    assert (attempt.state, attempt.exit, attempt.pid, attempt.ended) == ("done", 0, 4711, 30.0)
    assert (attempt.cpu, attempt.wall, attempt.max_rss) == (0.5, 1.5, 7)
    assert records.get(db, job).ended == 30.0


def test_the_end_of_an_old_attempt_is_not_heard(db):
    job = add(db, retry=Retry(3, delay=0))
    assert run(db, job, BAD) is State.QUEUED
    start(db, job, now=1000.0)
    before = story(db, job)
    assert end(db, job, OK, attempt=1) is State.RUNNING
    assert [one.state for one in records.attempts(db, job)] == ["failed", "running"]
    assert story(db, job) == before


def test_an_end_is_heard_once(db):
    job = add(db)
    run(db, job, OK)
    assert end(db, job, BAD) is State.DONE
    assert [one.state for one in records.attempts(db, job)] == ["done"]


def test_the_end_of_a_job_that_is_not_is_not_heard(db):
    moves.finish(db, 99, 1, new().spec, OK, now=1.0, dice=random.Random(0))
    assert db.value("journal_last") == 0


def test_failures_count_and_losses_do_not(db):
    job = add(db, retry=Retry(2, delay=0))
    lost = retry.AttemptEnd(ok=False, message="gone", lost=True)
    assert [run(db, job, how) for how in (lost, BAD, lost, BAD)] == [
        State.QUEUED, State.QUEUED, State.QUEUED, State.FAILED
    ]  # fmt: skip
    assert [one.state for one in records.attempts(db, job)] == ["lost", "failed", "lost", "failed"]


def test_a_thousand_jobs_share_a_parent_directory():
    assert moves.attempt_dir("/jobs", 12_345, 2) == "/jobs/0012/12345.2"


def test_declared_outputs_are_known_by_their_writer(db):
    one, two = add(db), add(db)
    moves.declare(db, {one: ["/a", "/b"]})
    moves.declare(db, {two: ["/b"]})
    assert db.rows("output_all", most=10) == [("/a", one, 0), ("/b", two, 0)]
    assert db.rows("output_of", job=two) == [("/b",)]


# -- what a person asks --------------------------------------------------------------------------


def test_a_queued_job_is_cancelled_at_once_and_once(db):
    job = add(db)
    for _ in range(2):
        assert moves.cancel(db, records.get(db, job), now=5.0) is State.CANCELLED
    assert story(db, job) == [(0, "queued"), (0, "cancelled")]
    one = records.get(db, job)
    assert (one.reason, one.ended) == ("cancelled by a person", 5.0)


@pytest.mark.parametrize("ask, final", [(moves.cancel, State.CANCELLED), (moves.hold, State.HELD)])
def test_a_running_job_is_asked_and_obeys_when_it_ends(db, ask, final):
    job = add(db, retry=Retry(5))
    start(db, job)
    assert ask(db, records.get(db, job), now=5.0) is State.RUNNING
    assert [row[:2] for row in db.rows("job_asked")] == [(job, 1)]
    assert end(db, job, BAD) is final
    assert db.rows("job_asked") == []
    assert records.attempts(db, job)[0].state == "cancelled"


def test_a_held_job_goes_on_when_it_is_released(db):
    job = add(db)
    assert moves.hold(db, records.get(db, job), now=1.0) is State.HELD
    assert moves.hold(db, records.get(db, job), now=1.0) is State.HELD
    assert moves.release(db, records.get(db, job), now=2.0) is State.QUEUED
    assert story(db, job) == [(0, "queued"), (0, "held"), (0, "queued")]


def test_who_is_held_while_its_predecessor_runs_waits_when_released(db):
    one = add(db)
    two = add(db, after=(one,))
    moves.hold(db, records.get(db, two), now=1.0)
    assert moves.release(db, records.get(db, two), now=1.0) is State.WAITING
    moves.hold(db, records.get(db, two), now=1.0)
    run(db, one)
    assert state(db, two) is State.HELD
    assert moves.release(db, records.get(db, two), now=1.0) is State.QUEUED


def test_who_is_held_while_its_predecessor_fails_is_not_released_to_wait_forever(db):
    one = add(db)
    two = add(db, after=(one,))
    moves.hold(db, records.get(db, two), now=1.0)
    run(db, one, BAD)
    with pytest.raises(errors.IllegalTransition, match="follows job 1, which is failed") as caught:
        moves.release(db, records.get(db, two), now=1.0)
    assert "pilotage retry 1" in caught.value.hint
    moves.again(db, records.get(db, one), now=1.0)
    assert moves.release(db, records.get(db, two), now=1.0) is State.WAITING
    run(db, one)
    assert state(db, two) is State.QUEUED


def test_only_held_jobs_are_released(db):
    job = add(db)
    with pytest.raises(errors.IllegalTransition, match="is queued, not held"):
        moves.release(db, records.get(db, job), now=1.0)


def test_a_job_that_ended_badly_is_tried_again_under_a_new_number(db):
    job = add(db)
    run(db, job, BAD)
    assert moves.again(db, records.get(db, job), now=2.0) is State.QUEUED
    assert records.get(db, job).ended is None
    assert run(db, job) is State.DONE
    assert [one.number for one in records.attempts(db, job)] == [1, 2]


@pytest.mark.parametrize("ended", [False, True])
def test_a_job_that_has_not_ended_or_is_done_is_not_tried_again(db, ended):
    job = add(db)
    start(db, job)
    if ended:
        end(db, job)
    with pytest.raises(errors.IllegalTransition, match="done" if ended else "has not ended"):
        moves.again(db, records.get(db, job), now=1.0)


def test_a_chain_is_tried_again_from_its_start(db):
    one = add(db)
    two = add(db, after=(one,))
    run(db, one, BAD)
    with pytest.raises(errors.IllegalTransition, match="follows job 1, which is failed"):
        moves.again(db, records.get(db, two), now=1.0)
    moves.again(db, records.get(db, one), now=1.0)
    assert moves.again(db, records.get(db, two), now=1.0) is State.WAITING
    run(db, one)
    assert run(db, two) is State.DONE


def test_done_cannot_be_undone(db):
    job = add(db)
    run(db, job)
    for verb in (moves.cancel, moves.hold):
        with pytest.raises(errors.IllegalTransition, match="job 1 is done"):
            verb(db, records.get(db, job), now=1.0)


def test_a_change_on_old_knowledge_changes_nothing(db):
    job = add(db)
    stale = records.get(db, job)
    start(db, job)
    assert not moves.move(db, job, stale.attempt, State.QUEUED, retry.Next(State.HELD, ""), now=1.0)
    assert state(db, job) is State.RUNNING
    assert story(db, job) == [(0, "queued"), (1, "running")]


# -- forgetting ----------------------------------------------------------------------------------


def forget_all(db: Db, before: float = 1e9) -> list[str]:
    folders: list[str] = []
    while (found := purge.forget(db, before)) is not None:
        folders += found
    return folders


def test_a_forgotten_job_leaves_nothing_but_its_key(db):
    job = add(db, key="k")
    run(db, job)
    moves.declare(db, {job: ["/out"]})
    assert forget_all(db) == ["/jobs/0000/1.1"]
    with pytest.raises(errors.NotFound):
        records.get(db, job)
    assert story(db, job) == []
    assert records.attempts(db, job) == []
    assert db.rows("output_all", most=10) == []
    assert records.add(db, new(key="k"), 50.0) is None
    assert db.rows("job_keys", keys='["k", "other"]') == [("k",)]


def test_the_number_of_a_forgotten_job_is_not_given_again(db):
    job = add(db)
    run(db, job)
    forget_all(db)
    assert add(db) > job


def test_only_what_ended_before_is_forgotten(db):
    done, queued, running, held = (add(db) for _ in range(4))
    run(db, done)
    start(db, running)
    moves.hold(db, records.get(db, held), now=1.0)
    assert forget_all(db, before=30.0) == []
    assert forget_all(db, before=30.1) == ["/jobs/0000/1.1"]
    assert [one.id for one in records.find(db, records.Selection())] == [queued, running, held]


def test_a_job_on_which_another_may_still_depend_is_kept(db):
    one = add(db)
    two = add(db, after=(one,))
    moves.hold(db, records.get(db, two), now=1.0)
    run(db, one)
    forget_all(db)
    assert moves.release(db, records.get(db, two), now=40.0) is State.QUEUED


def test_a_whole_chain_is_forgotten_when_all_of_it_ended(db):
    one = add(db)
    two = add(db, after=(one,))
    add(db, after=(two,))
    run(db, one, BAD)
    forget_all(db)
    assert records.find(db, records.Selection()) == []
    assert db.rows("dependency_of", job=two) == []


def test_directories_and_files_are_removed_and_what_is_gone_already_is_no_error(tmp_path):
    folder, file, other = tmp_path / "1.1", tmp_path / "message", tmp_path / "other"
    (folder / "deep").mkdir(parents=True)
    file.touch()
    other.touch()
    purge.remove([str(folder), str(file), str(tmp_path / "none")])
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
