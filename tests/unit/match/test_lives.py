"""Whatever happens to pilots, hub and store: nothing is lost, and no attempt starts twice."""

from __future__ import annotations

import itertools
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pilotage.job import machine, moves, records
from pilotage.job.model import Command, JobSpec, Limit, NewJob, Resources, Retry, State
from pilotage.job.moves import EndedJob
from pilotage.job.retry import AttemptEnd
from pilotage.match.negotiate import Matcher
from pilotage.match.place import Granted, Place, PlaceRequest
from pilotage.match.share import Shares, Slice
from pilotage.match.turn import TurnBatch, TurnRecords
from pilotage.store import connect

LOST = AttemptEnd(ok=False, message="silent", lost=True)
ENDS = {
    "ok": AttemptEnd(ok=True, message="", exit=0, wall=1.0),
    "bad": AttemptEnd(ok=False, message="exit code 1", exit=1, wall=1.0),
    "stopped": AttemptEnd(ok=False, message="stopped", stopped=True, wall=1.0),
}


class _Failed(Exception):
    pass


class Node:
    """What a pilot knows, whatever the hub thinks."""

    def __init__(self, number: int, cpus: int) -> None:
        self.number, self.cpus = number, cpus
        #: Attempts that it runs, with the number of their definition.
        self.runs: dict[tuple[int, int], int] = {}
        #: Attempts that are over and that the hub may not know of.
        self.ended: dict[tuple[int, int], EndedJob] = {}
        self.seen: set[tuple[int, int]] = set()
        self.joined = False

    def begin(self, job: int, attempt: int, spec: int) -> bool:
        if (job, attempt) in self.seen:
            return False
        self.seen.add((job, attempt))
        self.runs[job, attempt] = spec
        return True


class Lives(RuleBasedStateMachine):
    """A hub, its store and a few pilots."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.db = connect(Path(self.folder.name, "store.db"))
        self.now = 1000.0
        self.nodes = {number: Node(number, cpus) for number, cpus in ((1, 1), (2, 2), (3, 4))}
        self.started: dict[tuple[int, int], int] = {}
        self.numbers = itertools.count(1)
        self.answered: dict[int, int] = {}
        self.ledger = self._fresh()

    def teardown(self) -> None:
        try:
            self._wind_up()
        finally:
            self.db.close()
            self.folder.cleanup()

    def _fresh(self) -> TurnRecords:
        shares = Shares(3600.0, {"ann": Slice(quota=4)})
        return TurnRecords(Matcher(shares, patience=5.0), "/jobs", random.Random(0))

    # -- the hub ---------------------------------------------------------------------------------

    def _turn(self, *requests: PlaceRequest, changes: Any = (), fails: int = 0) -> None:
        batch = TurnBatch(list(changes), list(requests))
        for attempt in range(fails + 1):
            try:
                with self.db.transaction():
                    outcome = self.ledger.turn(self.db, batch, self.now)
                    if attempt < fails:
                        raise _Failed
            except _Failed:
                continue
            assert not outcome.refused
            self.ledger.settled(outcome)
            for request, granted in outcome.answers:
                request.answer(granted)

    def _ask(self, node: Node, *, park: bool, lost: bool, fails: int = 0) -> None:
        number = next(self.numbers)
        sent = dict(node.ended)

        def hear(granted: Granted) -> None:
            self.answered[number] = self.answered.get(number, 0) + 1
            if lost:
                return
            for key in sent:
                node.ended.pop(key, None)
            for claim in granted.claims:
                self._begin(node, claim.job, claim.attempt, claim.spec)
            for stop in granted.stops:
                self._over(node, (stop.job, stop.attempt), "stopped")

        request = PlaceRequest(node.number, hear, list(sent.values()), park=park)
        self.answered.setdefault(number, 0)
        self._turn(request, fails=fails)

    def _begin(self, node: Node, job: int, attempt: int, spec: int) -> None:
        if node.begin(job, attempt, spec):
            assert (job, attempt) not in self.started
            self.started[job, attempt] = node.number

    def _over(self, node: Node, key: tuple[int, int], how: str) -> None:
        spec = node.runs.pop(key, None)
        if spec is not None:
            node.ended[key] = EndedJob(*key, spec, ENDS[how])

    def _join(self, node: Node, fails: int = 0) -> None:
        def change(ledger: TurnRecords, _db: Any, _now: float) -> None:
            place = ledger.matcher.places.get(node.number)
            if place is None:
                host = {"host": f"h{node.number}"}
                place = Place(node.number, "a", host, cpus=node.cpus, memory=100)
                ledger.join(place)
            place.taking = True
            ledger.unpark(node.number)

        self._turn(changes=[change], fails=fails)
        node.joined = True
        leases = self.ledger.matcher.places[node.number].leases
        for key in [key for key in node.runs if leases.get(key[0], None) is None
                    or leases[key[0]].attempt != key[1]]:  # fmt: skip
            # It is told to stop what is not its own any more.
            self._over(node, key, "stopped")
        for lease in leases.values():
            self._begin(node, lease.job, lease.attempt, lease.spec)

    # -- what happens ----------------------------------------------------------------------------

    @rule(count=st.integers(1, 3), cpus=st.sampled_from([1, 1, 1, 2, 4]),
          owner=st.sampled_from(["ann", "bob"]), limit=st.booleans(),
          priority=st.sampled_from([0, 0, 5]))  # fmt: skip
    def submit(self, *, count: int, cpus: int, owner: str, limit: bool, priority: int) -> None:
        spec = JobSpec(
            Command(("x",)), "x", resources=Resources(cpus=cpus), retry=Retry(2, delay=2.0),
            priority=priority, limit=Limit("k", 2) if limit else None,
        )  # fmt: skip
        with self.db.transaction():
            for _ in range(count):
                new = NewJob(spec, owner=owner, limit_key="k:2" if limit else "")
                records.add(self.db, new, self.now)

    @rule(number=st.sampled_from([1, 2, 3]), park=st.booleans(), lost=st.booleans(),
          fails=st.sampled_from([0, 0, 0, 1, 2]))  # fmt: skip
    def ask(self, *, number: int, park: bool, lost: bool, fails: int) -> None:
        node = self.nodes[number]
        if not node.joined:
            self._join(node, fails)
        self._ask(node, park=park, lost=lost, fails=fails)
        if lost:
            # It has heard nothing, and comes back by another connection.
            self._join(node)

    @rule(number=st.sampled_from([1, 2, 3]), how=st.sampled_from(["ok", "ok", "bad"]))
    def payload_ends(self, number: int, how: str) -> None:
        node = self.nodes[number]
        if node.runs:
            self._over(node, next(iter(node.runs)), how)

    @rule(number=st.sampled_from([1, 2, 3]), fails=st.sampled_from([0, 0, 1]))
    def lease_expires(self, number: int, fails: int) -> None:
        change = lambda ledger, db, now: ledger.lose(db, number, LOST, now)  # noqa: E731
        self._turn(changes=[change], fails=fails)
        self.nodes[number].joined = False

    @rule(number=st.sampled_from([1, 2, 3]))
    def late_result(self, number: int) -> None:
        node = self.nodes[number]
        ended = list(node.ended.values())
        if not node.joined:
            self._turn(PlaceRequest(number, lambda _: None, ended))

    @rule()
    def restart(self) -> None:
        self.ledger = self._fresh()
        for node in self.nodes.values():
            if node.joined:
                self._join(node)
        # Whoever asked the old hub asks the new one.
        self.answered = {}

    @rule(seconds=st.sampled_from([0.5, 3.0, 10.0, -20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self._turn()

    @precondition(lambda self: self._jobs())
    @rule(data=st.data(), what=st.sampled_from(["cancel", "hold", "release", "again"]))
    def person(self, data: st.DataObject, what: str) -> None:
        job = records.get(self.db, data.draw(st.sampled_from(self._jobs())))
        if what == "release" and job.state is not State.HELD:
            return
        if what == "again" and (job.state not in machine.FINAL or job.state is State.DONE):
            return
        if what in {"cancel", "hold"} and job.state in machine.FINAL:
            return
        with self.db.transaction():
            getattr(moves, what)(self.db, job, now=self.now)

    def _jobs(self) -> list[int]:
        return [row[0] for row in self.db.rows("job_ids", first=1, last=2**60, states="[]",
                                               name="*", tag="")]  # fmt: skip

    # -- what must hold --------------------------------------------------------------------------

    @invariant()
    def books_are_right(self) -> None:
        ledger = self.ledger
        if ledger._doubt:
            return
        held: dict[int, Place] = {}
        cores: dict[str, int] = {}
        for place in ledger.matcher.places.values():
            used = sum(place.kinds[job].cluster.cpus for job in place.leases)
            assert place.free_cpus == place.cpus - used
            assert set(place.kinds) == set(place.leases)
            held |= dict.fromkeys(place.leases, place)
            for bucket in place.kinds.values():
                cores[bucket.owner] = cores.get(bucket.owner, 0) + bucket.cluster.cpus
        assert ledger.holder == held
        assert ledger.matcher.bounds.cores == cores
        orphans = {lease.job for some in ledger.orphans.values() for _, lease in some}
        running = {row[0] for row in self.db.rows("queue_leases")}
        assert running == set(held) | orphans
        assert max(cores.get("ann", 0) - 4, 0) == 0
        assert ledger.matcher.bounds.limited.get("k:2", 0) <= 2

    @invariant()
    def each_job_commits_once(self) -> None:
        for job in self._jobs():
            lines = [row[2] for row in self.db.rows("journal_of", job=job)]
            assert lines.count("done") <= 1
            assert "done" not in lines[:-1]

    @invariant()
    def each_question_is_answered_once(self) -> None:
        assert all(count <= 1 for count in self.answered.values())

    def _wind_up(self) -> None:
        """Let all pilots work until nothing is left: every job ends, or is held by a person."""
        for _ in range(60):
            self.now += 30
            for node in self.nodes.values():
                for key in list(node.runs):
                    self._over(node, key, "ok")
                if not node.joined:
                    self._join(node)
                self._ask(node, park=False, lost=False)
        left = {records.get(self.db, job).state for job in self._jobs()}
        assert left <= machine.FINAL | {State.HELD}
        assert all(count == 1 for count in self.answered.values())


_CHECKS = list(HealthCheck)
TestLives = Lives.TestCase
TestLives.settings = settings(stateful_step_count=20, suppress_health_check=_CHECKS)


@pytest.mark.slow
class TestLongLives(Lives.TestCase):  # type: ignore[valid-type, misc]
    settings = settings(max_examples=40, stateful_step_count=40, suppress_health_check=_CHECKS)


def test_who_waits_is_forgotten_with_the_room_that_it_had_before_a_turn_was_done_again():
    lives = Lives()
    lives.submit(count=1, cpus=1, limit=False, owner="ann", priority=0)
    lives.ask(number=2, park=False, lost=False, fails=0)
    lives.ask(number=2, park=True, lost=False, fails=0)
    lives.ask(number=1, park=False, lost=False, fails=1)
    lives.lease_expires(number=2, fails=0)
    lives.books_are_right()
    lives.teardown()
