"""Any verbs in any order: what must always be true of jobs stays true."""

from __future__ import annotations

import itertools
import random
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pilotage.base import errors
from pilotage.job import machine, moves, purge, records, retry
from pilotage.job.model import Command, Job, JobSpec, NewJob, Retry, State
from pilotage.store import connect

ENDS = st.builds(
    retry.AttemptEnd,
    ok=st.booleans(),
    message=st.just("why"),
    lost=st.booleans(),
    stopped=st.booleans(),
    missing=st.sampled_from([(), ("/out",)]),
    call_off=st.sampled_from(["", "", "", "changed"]),
)
BEGINNINGS = {State.QUEUED, State.WAITING, State.HELD, State.CANCELLED}
PICK = st.integers(0, 1000)


class Life(RuleBasedStateMachine):
    """Jobs as people, rules and runners treat them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.db = connect(Path(self.folder.name, "store.db"))
        self.db._connection.execute("PRAGMA synchronous = OFF")
        self.now = 0.0
        self.keys: set[str] = set()
        self.claims: dict[int, str] = {}

    def teardown(self) -> None:
        self.db.close()
        self.folder.cleanup()

    def jobs(self) -> list[Job]:
        return records.find(self.db, records.Selection())

    def pick(self, number: int) -> Job:
        jobs = self.jobs()
        return jobs[number % len(jobs)]

    def some(self) -> bool:
        return bool(self.jobs())

    @rule(
        after=st.lists(PICK, max_size=2),
        held=st.booleans(),
        attempts=st.integers(1, 3),
        key=st.sampled_from(["", "", "a", "b"]),
    )
    def add(self, after, held, attempts, key):
        jobs = [job.id for job in self.jobs()]
        follows = tuple(jobs[number % len(jobs)] for number in after) if jobs else ()
        spec = JobSpec(Command(("x",)), "x", retry=Retry(attempts, delay=0))
        state = State.HELD if held else State.QUEUED
        with self.db.transaction():
            made = records.add(self.db, NewJob(spec, key=key, state=state, after=follows), self.now)
        assert (made is None) == (key in self.keys)
        self.keys |= {key} - {""}

    @precondition(some)
    @rule(number=PICK)
    def look(self, number):
        """A runner sees a job, to claim it at some later time."""
        job = self.pick(number)
        self.claims[job.id] = "/s"

    @rule()
    def claim(self):
        queued = {job.id: job.attempt for job in self.jobs() if job.state is State.QUEUED}
        with self.db.transaction():
            mine = moves.claim(self.db, self.claims, "/j", self.now)
        for one in mine.values():
            assert queued.pop(one.job) == one.attempt - 1
        self.claims.clear()

    @precondition(some)
    @rule(number=PICK, end=ENDS, back=st.sampled_from([0, 0, 0, 1]))
    def finish(self, number, end, back):
        job = self.pick(number)
        heard = job.state is State.RUNNING and not back
        with self.db.transaction():
            moves.finish(
                self.db, job.id, job.attempt - back, job.spec, end, now=self.now,
                dice=random.Random(0),
            )  # fmt: skip
        after = records.get(self.db, job.id)
        assert (after != job) == heard

    @precondition(some)
    @rule(number=PICK, verb=st.sampled_from([moves.cancel, moves.hold, moves.release, moves.again]))
    def ask(self, number, verb):
        job = self.pick(number)
        try:
            with self.db.transaction():
                said = verb(self.db, job, now=self.now)
        except errors.IllegalTransition as error:
            assert error.hint  # noqa: PT017 - refusing is right, too
            assert records.get(self.db, job.id) == job
        else:
            assert records.get(self.db, job.id).state is said

    @rule()
    def forget(self):
        self.now += 1
        with self.db.transaction():
            purge.forget(self.db, self.now)

    @invariant()
    def the_journal_tells_how_each_job_got_where_it_is(self):
        for job in self.jobs():
            lines = self.db.rows("journal_of", job=job.id)
            states = [State(line[2]) for line in lines]
            assert states[0] in BEGINNINGS
            assert states[-1] is job.state
            assert lines[-1][3] == job.reason
            for old, new in itertools.pairwise(states):
                assert new in machine.TRANSITIONS[old]
            assert (job.ended is not None) == (job.state in machine.FINAL)

    @invariant()
    def attempts_are_numbered_and_one_at_most_runs(self):
        for job in self.jobs():
            attempts = records.attempts(self.db, job.id)
            assert [one.number for one in attempts] == list(range(1, job.attempt + 1))
            running = [one.number for one in attempts if one.state == "running"]
            assert running == ([job.attempt] if job.state is State.RUNNING else [])
            assert all((one.ended is None) == (one.state == "running") for one in attempts)

    @invariant()
    def nobody_waits_in_vain_and_nobody_runs_too_early(self):
        for job in self.jobs():
            before = self.follows(job.id)
            if job.state is State.WAITING:
                assert any(state is not State.DONE for state in before)
                assert not any(state in machine.FINAL - {State.DONE} for state in before)
            elif job.state in (State.QUEUED, State.RUNNING):
                assert set(before) <= {State.DONE}

    def follows(self, job: int) -> list[State]:
        """Return the states of what a job follows; one that may still run follows nothing lost."""
        found: list[tuple[Any, ...]] = self.db.rows("dependency_of", job=job)
        if records.get(self.db, job).state is State.DONE:
            return []
        return [State(state) for _, state in found]


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=30)
