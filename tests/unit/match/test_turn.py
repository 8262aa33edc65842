"""Turns of the matchmaker over a real store: claims, ends, waiting places, and turns that fail."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from pilotage.job import moves, records
from pilotage.job.model import Command, JobSpec, NewJob, Resources, Retry, State
from pilotage.job.moves import EndedJob
from pilotage.job.retry import AttemptEnd
from pilotage.match.negotiate import Matcher
from pilotage.match.place import Granted, Place, PlaceRequest
from pilotage.match.share import Shares
from pilotage.match.turn import TurnBatch, TurnRecords
from pilotage.store import Db, connect

OK = AttemptEnd(ok=True, message="", exit=0, wall=1.0, cpu=1.0)
BAD = AttemptEnd(ok=False, message="exit code 1", exit=1, wall=1.0)


def lose_first(ledger: TurnRecords, db: Db, now: float) -> None:
    """Give up the place with the number 1."""
    ledger.lose(db, 1, AttemptEnd(ok=False, message="silent", lost=True), now)


class Failed(Exception):
    pass


class Desk:
    """A ledger, its store and a clock."""

    def __init__(self, db: Db) -> None:
        self.db = db
        self.now = 100.0
        self.ledger = self.fresh()
        self.heard: list[tuple[str, list[int], list[str]]] = []

    def fresh(self) -> TurnRecords:
        return TurnRecords(Matcher(Shares(3600.0)), "/jobs", random.Random(0))

    def add(self, count: int = 1, **facts: Any) -> list[int]:
        spec = JobSpec(Command(("x",)), "x", **facts)
        with self.db.transaction():
            made = [records.add(self.db, NewJob(spec), self.now) for _ in range(count)]
        return [job for job in made if job is not None]

    def place(self, number: int = 1, cpus: int = 2) -> Place:
        one = Place(number, "a", {"host": f"h{number}"}, cpus=cpus, memory=2**40)
        one.taking = True
        self.turn(changes=[lambda ledger, _db, _now: ledger.join(one)])
        return one

    def ask(
        self, place: Place, *ends: EndedJob, park: bool = False, name: str = ""
    ) -> PlaceRequest:
        def hear(granted: Granted) -> None:
            jobs = [claim.job for claim in granted.claims]
            self.heard.append((name, jobs, [stop.words for stop in granted.stops]))

        return PlaceRequest(place.number, hear, list(ends), park=park)

    def turn(self, *requests: PlaceRequest, changes: Any = (), fail: bool = False) -> None:
        batch = TurnBatch(list(changes), list(requests))
        try:
            with self.db.transaction():
                outcome = self.ledger.turn(self.db, batch, self.now)
                if fail:
                    raise Failed
        except Failed:
            return
        self.ledger.settled(outcome)
        for request, error in outcome.refused:
            request.refuse(error)
        for request, granted in outcome.answers:
            request.answer(granted)

    def ended(self, place: Place, job: int, end: AttemptEnd = OK) -> EndedJob:
        lease = place.leases[job]
        return EndedJob(job, lease.attempt, lease.spec, end)

    def states(self, *jobs: int) -> list[State]:
        return [records.get(self.db, job).state for job in jobs]


@pytest.fixture
def desk(tmp_path) -> Iterator[Desk]:
    db = connect(tmp_path / "store.db")
    yield Desk(db)
    db.close()


def test_what_ends_makes_room_in_the_same_turn(desk):
    place = desk.place(cpus=1)
    first, second = desk.add(2)
    desk.turn(desk.ask(place))
    desk.turn(desk.ask(place, desk.ended(place, first)))
    assert [jobs for _, jobs, _ in desk.heard] == [[first], [second]]
    assert desk.states(first, second) == [State.DONE, State.RUNNING]


def test_a_place_that_waits_hears_of_a_new_job(desk):
    place = desk.place()
    desk.turn(desk.ask(place, park=True))
    assert desk.heard == []
    jobs = desk.add(1)
    desk.turn()
    assert desk.heard == [("", jobs, [])]


def test_a_new_question_has_the_one_that_waits_answered_with_nothing(desk):
    place = desk.place()
    desk.turn(desk.ask(place, park=True, name="old"))
    desk.turn(desk.ask(place, park=True, name="new"))
    assert desk.heard == [("old", [], [])]
    jobs = desk.add(1)
    desk.turn()
    assert desk.heard[1:] == [("new", jobs, [])]


def test_a_turn_that_could_not_be_written_is_done_again_and_loses_nothing(desk):
    place, other = desk.place(1, cpus=1), desk.place(2, cpus=1)
    (first,) = desk.add(1)
    desk.turn(desk.ask(place))
    desk.turn(desk.ask(other, park=True, name="waits"))
    second, third = desk.add(2)
    again = desk.ask(place, desk.ended(place, first), name="reports")
    for _ in range(3):
        desk.turn(again, fail=True)
    assert desk.states(first, second, third) == [State.RUNNING, State.QUEUED, State.QUEUED]
    desk.turn(again)
    assert desk.states(first, second, third) == [State.DONE, State.RUNNING, State.RUNNING]
    heard = {name: jobs for name, jobs, _ in desk.heard[1:]}
    assert sorted(heard) == ["reports", "waits"]
    assert sorted(heard["reports"] + heard["waits"]) == [second, third]


def test_a_failed_turn_does_not_forget_what_a_restart_must_know(desk):
    place = desk.place(cpus=2)
    jobs = desk.add(4)
    desk.turn(desk.ask(place))
    desk.turn(desk.ask(place, *(desk.ended(place, job) for job in jobs[:2])), fail=True)
    desk.ledger = desk.fresh()
    again = desk.place(cpus=2)
    assert set(again.leases) == set(jobs[:2])
    assert again.free_cpus == 0


def test_only_who_holds_a_job_is_heard(desk):
    place, thief = desk.place(1, cpus=1), desk.place(2, cpus=1)
    (job,) = desk.add(1)
    desk.turn(desk.ask(place))
    stolen = desk.ended(place, job)
    desk.turn(desk.ask(thief, stolen))
    assert desk.states(job) == [State.RUNNING]
    old = EndedJob(job, 7, stolen.spec, OK)
    desk.turn(desk.ask(place, old))
    assert desk.states(job) == [State.RUNNING]


def test_who_comes_back_late_changes_nothing_once_another_has_begun(desk):
    place = desk.place(1, cpus=1)
    (job,) = desk.add(1)
    desk.turn(desk.ask(place))
    late = desk.ended(place, job)
    desk.turn(changes=[lose_first])
    other = desk.place(2, cpus=1)
    desk.turn(desk.ask(other))
    assert records.get(desk.db, job).attempt == 2
    back = desk.place(1, cpus=1)
    desk.turn(desk.ask(back, late))
    one = records.get(desk.db, job)
    assert (one.state, one.attempt) == (State.RUNNING, 2)
    desk.turn(desk.ask(other, desk.ended(other, job)))
    assert [attempt.state for attempt in records.attempts(desk.db, job)] == ["lost", "done"]


def test_a_late_result_counts_while_nobody_has_begun_anew(desk):
    place = desk.place(1, cpus=1)
    (job,) = desk.add(1)
    desk.turn(desk.ask(place))
    late = desk.ended(place, job)
    desk.turn(changes=[lose_first])
    assert desk.states(job) == [State.QUEUED]
    back = desk.place(1, cpus=1)
    back.taking = False
    desk.turn(desk.ask(back, late))
    one = records.get(desk.db, job)
    assert (one.state, one.attempt) == (State.DONE, 1)
    back.taking = True
    desk.turn(desk.ask(back))
    assert desk.heard[-1][1] == []


def test_a_failure_is_tried_again_as_the_job_says(desk):
    place = desk.place(cpus=1)
    (job,) = desk.add(1, retry=Retry(2, delay=5.0))
    desk.turn(desk.ask(place))
    desk.turn(desk.ask(place, desk.ended(place, job, BAD)))
    assert desk.states(job) == [State.QUEUED]
    assert desk.heard[-1][1] == []
    desk.now += 10
    desk.turn(desk.ask(place))
    assert desk.heard[-1][1] == [job]


def test_what_a_person_calls_off_is_stopped_once_where_it_runs(desk):
    place = desk.place(cpus=1)
    (job,) = desk.add(1)
    desk.turn(desk.ask(place))
    desk.turn(desk.ask(place, park=True))
    with desk.db.transaction():
        moves.cancel(desk.db, records.get(desk.db, job), now=desk.now)
    desk.turn()
    assert desk.heard[-1] == ("", [], ["cancelled by a person"])
    desk.turn(desk.ask(place, park=True))
    assert len(desk.heard) == 2
    stopped = AttemptEnd(ok=False, message="stopped", stopped=True, wall=1.0)
    desk.turn(desk.ask(place, desk.ended(place, job, stopped)))
    assert desk.states(job) == [State.CANCELLED]


def test_a_job_that_was_cancelled_while_queued_is_never_claimed(desk):
    place = desk.place(cpus=2)
    first, second = desk.add(2)
    desk.turn()
    with desk.db.transaction():
        moves.cancel(desk.db, records.get(desk.db, first), now=desk.now)
    desk.turn(desk.ask(place))
    assert desk.heard[-1][1] == [second]
    assert place.free_cpus == 1


def test_definitions_that_fit_nowhere_are_known(desk):
    desk.place(cpus=2)
    desk.add(1)
    desk.add(1, resources=Resources(cpus=64))
    desk.turn()
    assert len(desk.ledger.never()) == 1
    desk.place(2, cpus=64)
    assert desk.ledger.never() == set()


def test_a_place_that_is_lost_in_a_turn_that_fails_is_lost_in_the_next(desk):
    place = desk.place(cpus=1)
    (job,) = desk.add(1)
    desk.turn(desk.ask(place))
    desk.turn(changes=[lose_first], fail=True)
    assert desk.states(job) == [State.RUNNING]
    desk.turn(changes=[lose_first])
    assert desk.states(job) == [State.QUEUED]
    assert desk.ledger.holder == {}


def test_who_asks_in_a_turn_that_fails_is_answered_once(desk):
    place = desk.place(cpus=1)
    waits = desk.ask(place, park=True, name="waits")
    desk.turn(waits, fail=True)
    (job,) = desk.add(1)
    desk.turn(waits)
    desk.turn()
    assert desk.heard == [("waits", [job], [])]


def test_two_questions_in_a_turn_that_fails_are_answered_once_each(desk):
    place = desk.place(cpus=1)
    asked = [desk.ask(place, park=True, name=name) for name in ("first", "second")]
    for _ in range(2):
        desk.turn(*asked, fail=True)
    desk.turn(*asked)
    assert desk.heard == [("first", [], [])]
    (job,) = desk.add(1)
    desk.turn()
    assert desk.heard[1:] == [("second", [job], [])]


def test_a_late_result_counts_only_from_who_held_the_job(desk):
    place = desk.place(1, cpus=1)
    (job,) = desk.add(1)
    desk.turn(desk.ask(place))
    late = desk.ended(place, job)
    desk.turn(changes=[lose_first])
    thief = desk.place(2, cpus=1)
    thief.taking = False
    desk.turn(desk.ask(thief, late))
    assert desk.states(job) == [State.QUEUED]
    desk.turn(PlaceRequest(1, lambda _: None, [late]))
    assert desk.states(job) == [State.DONE]


def test_a_job_that_may_not_start_because_the_clock_went_back_starts_later(desk):
    place = desk.place(cpus=1)
    (job,) = desk.add(1, retry=Retry(2, delay=0.0))
    desk.turn(desk.ask(place))
    place.taking = False
    desk.turn(desk.ask(place, desk.ended(place, job, BAD)))
    desk.now += 1
    desk.turn(desk.ask(place))
    place.taking = True
    desk.now -= 51
    desk.turn(desk.ask(place))
    assert desk.heard[-1][1] == []
    assert place.free_cpus == 1
    desk.now += 60
    desk.turn(desk.ask(place))
    assert desk.heard[-1][1] == [job]


def test_what_cannot_be_recorded_is_refused_and_keeps_nobody_else(desk):
    place, rogue = desk.place(1, cpus=1), desk.place(2, cpus=1)
    first, second = desk.add(2)
    desk.turn(desk.ask(place), desk.ask(rogue))
    refused: list[Exception] = []
    bad = desk.ask(
        rogue, EndedJob(second, 1, 1, AttemptEnd(ok=False, message="", exit=2**70)), name="rogue"
    )
    bad.refuse = refused.append
    desk.turn(bad, desk.ask(place, desk.ended(place, first), name="good"))
    assert desk.states(first, second) == [State.DONE, State.RUNNING]
    assert [type(error) for error in refused] == [OverflowError]
    assert [name for name, _, _ in desk.heard[2:]] == ["good"]
    assert set(rogue.leases) == {second}
    assert place.free_cpus == 1


def test_a_change_that_fails_is_left_out_and_its_traces_with_it(desk):
    place = desk.place(cpus=2)
    (job,) = desk.add(1)
    desk.turn(desk.ask(place))

    def half(ledger: TurnRecords, db: Db, now: float) -> None:
        ledger.lose(db, 1, BAD, now)
        raise ZeroDivisionError

    desk.turn(changes=[half])
    assert desk.states(job) == [State.RUNNING]
    assert desk.ledger.orphans["pilot:1"][0][1].job == job


def test_a_definition_that_cannot_be_read_does_not_stop_the_queue(desk):
    place = desk.place(cpus=2)
    (bad,) = desk.add(1, requirements="(((")
    (good,) = desk.add(1)
    desk.turn(desk.ask(place))
    assert desk.states(bad, good) == [State.REJECTED, State.RUNNING]


def test_nobody_is_charged_for_more_time_than_has_passed(desk):
    place = desk.place(cpus=1)
    (job,) = desk.add(1)
    desk.turn(desk.ask(place))
    desk.now += 5
    long = AttemptEnd(ok=True, message="", exit=0, wall=1e300, cpu=1.0)
    desk.turn(desk.ask(place, desk.ended(place, job, long)))
    shares = desk.ledger.matcher.shares
    assert [shares.total(owner) for owner in shares.owners()] == [5.0]


def test_what_a_place_refuses_is_not_offered_to_it_again_and_is_no_failure(desk):
    refused = AttemptEnd(ok=False, message="it has no such folder", refused=True)
    jobs = desk.add(50)
    others = desk.add(3, priority=-1)
    one, two = desk.place(1, cpus=2), desk.place(2, cpus=1)
    desk.turn(desk.ask(one, name="a"))
    taken = list(one.leases)
    assert taken == jobs[:2]
    desk.turn(desk.ask(one, desk.ended(one, taken[0], refused), name="b"))
    assert records.get(desk.db, taken[0]).reason == "it has no such folder"
    # It goes on with another definition, and none of the same comes to it any more.
    assert set(one.leases) == {taken[1], others[0]}
    desk.turn(desk.ask(two))
    assert list(two.leases) == [taken[0]]
    assert desk.states(taken[0]) == [State.RUNNING]
    assert [one.state for one in records.attempts(desk.db, taken[0])] == ["lost", "running"]


def test_what_all_places_refuse_can_never_start(desk):
    (job,) = desk.add()
    one = desk.place(1)
    desk.turn(desk.ask(one))
    desk.turn(desk.ask(one, desk.ended(one, job, AttemptEnd(ok=False, message="no", refused=True))))
    assert desk.ledger.never() == {1}
    # A turn that could not be written and the next process alike must not forget the rest.
    desk.turn(desk.ask(one), fail=True)
    desk.turn(desk.ask(one))
    assert desk.states(job) == [State.QUEUED]
    desk.turn(desk.ask(two := desk.place(2)))
    assert list(two.leases) == [job]


def test_a_place_that_has_changed_is_offered_again_what_it_refused(desk):
    (job,) = desk.add()
    one = desk.place(1)
    desk.turn(desk.ask(one))
    desk.turn(desk.ask(one, desk.ended(one, job, AttemptEnd(ok=False, message="no", refused=True))))
    desk.turn(desk.ask(one))
    assert not one.leases
    matcher = desk.ledger.matcher
    matcher.describe(one, dict(one.attributes))
    desk.turn(desk.ask(one))
    assert not one.leases, "it was described anew, and is as it was"
    matcher.forgive(one)
    matcher.describe(one, dict(one.attributes))
    desk.turn(desk.ask(one))
    assert list(one.leases) == [job]


BUSY = AttemptEnd(ok=False, message="a refused it: 3 are the most", refused=True, again=30.0)


class Site:
    """A place without a bound of its own, where a site refuses more than so many jobs."""

    def __init__(self, desk: Desk, most: int) -> None:
        self.desk, self.most = desk, most
        self.place = desk.place(cpus=1 << 40)
        self.refused = 0

    def turn(self, *ends: EndedJob) -> None:
        """Let the matchmaker send what it likes, and refuse what is too much."""
        self.desk.turn(self.desk.ask(self.place, *ends))
        self._refuse()

    def wake(self) -> None:
        """Let the matchmaker do what it does by itself, for a place that waits."""
        self.desk.turn(self.desk.ask(self.place, park=True))
        self._refuse()

    def _refuse(self) -> None:
        while extra := list(self.place.leases)[self.most :]:
            self.refused += len(extra)
            ends = [self.desk.ended(self.place, job, BUSY) for job in extra]
            # A few words come at a time.
            for some in (ends[:2], ends[2:]):
                if some:
                    self.desk.turn(self.desk.ask(self.place, *some))


def test_what_a_site_that_has_enough_refuses_is_not_sent_again_all_at_once(desk):
    jobs = desk.add(50)
    site = Site(desk, 3)
    site.turn()
    assert (len(site.place.leases), site.refused) == (3, 47)
    assert records.get(desk.db, jobs[-1]).reason == "a refused it: 3 are the most"
    for _ in range(10):
        desk.now += 29.9
        site.wake()
    assert site.refused <= 47 + 10, "one of all is tried in 30 s"
    assert desk.ledger.never() == set(), "it passes by itself"


def test_a_job_that_ends_makes_room_for_one_where_the_site_had_enough(desk):
    desk.add(50)
    site = Site(desk, 3)
    site.turn()
    for _ in range(5):
        before = set(site.place.leases)
        site.turn(desk.ended(site.place, min(before)))
        assert len(site.place.leases) == 3
    assert site.refused == 47, "nothing was sent in vain"
    # A place that waits hears of it, too, if the end came by another way.
    desk.turn(desk.ask(site.place, park=True))
    gone = desk.ended(site.place, min(site.place.leases))
    desk.turn(changes=[lambda ledger, db, now: ledger.finish(db, [(1, [gone])], now)])
    assert len(site.place.leases) == 3
    assert gone.job not in site.place.leases


def test_a_site_that_takes_more_is_sent_twice_as_many_each_time(desk):
    desk.add(50)
    site = Site(desk, 3)
    site.turn()
    site.most = 1000
    desk.turn(desk.ask(site.place, park=True))
    seen = []
    for _ in range(4):
        due = desk.ledger.matcher.next_due
        assert due is not None
        assert due <= desk.now + 30.0
        desk.now = due
        desk.turn()
        seen.append(len(site.place.leases))
        desk.turn(desk.ask(site.place, park=True))
    assert seen == [4, 6, 10, 18]


def test_a_site_with_other_rules_is_sent_all_again_that_it_had_too_many_of(desk):
    desk.add(50)
    site = Site(desk, 3)
    site.turn()
    matcher = desk.ledger.matcher
    matcher.forgive(site.place)
    matcher.describe(site.place, dict(site.place.attributes))
    desk.turn(desk.ask(site.place))
    assert len(site.place.leases) == 50
    assert matcher.next_due is None


def test_a_turn_that_is_not_written_does_not_forget_what_a_site_takes(desk):
    desk.add(50)
    site = Site(desk, 3)
    site.turn()
    desk.turn(desk.ask(site.place), fail=True)
    site.turn()
    assert (len(site.place.leases), site.refused) == (3, 47)


def test_what_a_site_refused_is_not_sent_there_because_it_has_waited_long(desk):
    desk.add(5)
    site = Site(desk, 3)
    site.turn()
    matcher = desk.ledger.matcher
    desk.turn(desk.ask(site.place, park=True))
    (bucket,) = (one for one in matcher.buckets.values() if one)
    assert not matcher.usable(bucket, site.place, desk.now)


def test_another_place_takes_at_once_what_a_site_has_enough_of(desk):
    desk.add(5)
    site = Site(desk, 3)
    site.turn()
    desk.turn(desk.ask(two := desk.place(2)))
    assert len(two.leases) == 2
