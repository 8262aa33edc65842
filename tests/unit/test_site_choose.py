"""Which queued jobs start next: urgency, room, limits, and what never fits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pilotage.job import moves, records
from pilotage.job.model import Binding, Command, JobSpec, NewJob, Resources, State
from pilotage.match.model import Offer
from pilotage.site import choose
from pilotage.store import Db, connect

GIB = 2**30


@pytest.fixture
def db(tmp_path) -> Iterator[Db]:
    opened = connect(tmp_path / "store.db")
    with opened.transaction():
        yield opened
    opened.close()


def add(db: Db, priority: int = 0, limit_key: str = "", **facts: Any) -> int:
    needs = {key: facts.pop(key) for key in ("cpus", "memory", "gpus") if key in facts}
    spec = JobSpec(Command(("x",)), "x", resources=Resources(**needs), priority=priority)
    job = records.add(db, NewJob(spec, limit_key=limit_key, **facts), 0.0, rule="r")
    assert job is not None
    return job


def room(cpus: int, memory: int = 100 * GIB) -> Offer:
    return Offer("local", cpus, cpus, memory, memory)


def pick(db: Db, offer: Offer, specs: choose.Specs | None = None, **facts: Any) -> list[int]:
    plain: dict[str, Any] = {"tenants": (), "extra": 0, "now": 1000.0}
    known = specs or choose.Specs()
    return [one.job for one in choose.choose(db, known, offer, **plain | facts)]


def tenant(limit_key: str) -> choose.Tenant:
    return choose.Tenant(99, 1, JobSpec(Command(("x",)), "x"), limit_key, "r", "/j")


# -- ahead ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cpus, wall, count",
    [(4, 0.1, 0), (4, 60.0, 0), (4, 0.05, 8), (1, 0.05, 2), (4, 0.0, 32), (1000, 0.01, 32)],
)
def test_only_short_jobs_are_claimed_ahead_and_never_too_many(cpus, wall, count):
    assert choose.ahead(cpus, wall) == count


# -- order ---------------------------------------------------------------------------------------


def test_the_most_urgent_start_first_and_else_the_oldest(db):
    for priority in (0, 5, 0, 5, -1):
        add(db, priority)
    assert pick(db, room(9)) == [2, 4, 1, 3, 5]
    assert pick(db, room(3)) == [2, 4, 1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(st.integers(-2, 2), max_size=8), st.integers(0, 9))
def test_who_starts_is_the_head_of_the_queue(db, priorities, cpus):
    db._connection.execute("SAVEPOINT example")
    jobs = {add(db, priority): priority for priority in priorities}
    order = sorted(jobs, key=lambda job: (-jobs[job], job))
    assert pick(db, room(cpus)) == order[:cpus]
    db._connection.execute("ROLLBACK TO example")
    db._connection.execute("RELEASE example")


def test_a_claim_says_what_starting_needs(db):
    job = add(db, binding=Binding(path="/d/a"), depth=3, limit_key="cam:2")
    (claim,) = choose.choose(db, choose.Specs(), room(1), (), extra=0, now=1.0)
    assert (claim.job, claim.attempt, claim.rule, claim.depth) == (job, 1, "r", 3)
    assert (records.read_binding(claim.binding).path, claim.limit_key) == ("/d/a", "cam:2")
    assert moves.claim(db, [claim], starter="/s", folder="/j", now=1.0) == [claim]
    assert pick(db, room(1)) == []


def test_who_may_not_start_yet_or_is_not_queued_is_left(db):
    add(db, not_before=1000.5)
    add(db, state=State.HELD)
    now = add(db, not_before=1000.0)
    assert pick(db, room(9)) == [now]


# -- room ----------------------------------------------------------------------------------------


def test_a_smaller_job_fills_the_room_that_a_larger_leaves(db):
    add(db, cpus=3)
    large = add(db, cpus=2)
    small = add(db, cpus=1)
    assert pick(db, room(4)) == [1, small]
    assert pick(db, room(5)) == [1, large]


def test_memory_and_gpus_are_room_too(db):
    add(db, memory=3 * GIB)
    add(db, memory=3 * GIB)
    add(db, gpus=1)
    small = add(db, memory=GIB)
    assert pick(db, room(9, 4 * GIB)) == [1, small]


def test_what_never_fits_is_remembered_and_stops_nobody(db):
    specs = choose.Specs()
    add(db, cpus=64, priority=9)
    add(db, cpus=4, priority=8)
    now = add(db)
    assert pick(db, Offer("local", 4, 2, GIB, GIB), specs) == [now]
    assert {specs.known[number].resources.cpus for number in specs.never} == {64}


def test_what_never_fits_is_remembered_although_it_has_a_limit(db):
    specs = choose.Specs()
    add(db, cpus=64, limit_key="cam:1")
    now = add(db)
    assert pick(db, room(2), specs) == [now]
    assert len(specs.never) == 1


def test_a_long_queue_that_cannot_run_costs_one_look_a_definition(db):
    for _ in range(50):
        add(db, cpus=64)
    now = add(db)
    looks: list[str] = []

    class Counting(choose.Specs):
        def get(self, db: Db, number: int) -> JobSpec:
            looks.append(str(number))
            return super().get(db, number)

    assert pick(db, room(2), Counting()) == [now]
    assert len(looks) < 6


def test_nothing_is_chosen_where_nothing_is_free(db):
    add(db)
    assert pick(db, Offer("local", 4, 0, GIB, GIB)) == []
    assert pick(db, Offer("local", 4, -1, GIB, GIB)) == []


def test_some_are_claimed_for_later_but_none_with_a_limit_or_that_never_fits(db):
    jobs = [add(db) for _ in range(5)]
    add(db, limit_key="cam:5", priority=1)
    add(db, cpus=64, priority=1)
    full = Offer("local", 4, 0, GIB, GIB)
    assert pick(db, full, extra=3) == jobs[:3]
    assert pick(db, Offer("local", 4, 1, GIB, GIB), extra=2) == [6, *jobs[:2]]


# -- limits --------------------------------------------------------------------------------------


def test_no_more_than_a_limit_allows_run_at_once(db):
    jobs = [add(db, limit_key="cam:2") for _ in range(4)]
    other = add(db, limit_key="disk:1")
    free = add(db)
    assert pick(db, room(9)) == [*jobs[:2], other, free]
    assert pick(db, room(9), tenants=[tenant("cam:2")]) == [jobs[0], other, free]
    assert pick(db, room(9), tenants=[tenant("cam:2")] * 2) == [other, free]


@pytest.mark.parametrize("key, most", [("cam:2", 2), ("/d/a:b:13", 13), (":1", 1)])
def test_the_number_of_a_limit_is_after_its_last_colon(key, most):
    assert choose.most(key) == most


def test_a_definition_is_read_once(db):
    add(db)
    specs = choose.Specs()
    (claim,) = choose.choose(db, specs, room(1), (), extra=0, now=1.0)
    first = specs.get(db, claim.spec)
    db.run("job_purge", ids="[1]")
    assert specs.get(db, claim.spec) is first


def test_a_tenant_is_known_by_job_and_attempt():
    assert tenant("").key == "99.1"


def test_a_queue_of_many_definitions_that_do_not_fit_is_walked_once(db: Db, monkeypatch) -> None:
    for number in range(50):
        spec = JobSpec(Command(("x", str(number))), "x", resources=Resources(cpus=2))
        records.add(db, NewJob(spec), 0.0)
    last = add(db)
    walks: list[str] = []
    run = Db.run

    def counted(db: Db, query: str, /, **values: Any) -> Any:
        walks.append(query)
        return run(db, query, **values)

    monkeypatch.setattr(Db, "run", counted)
    assert pick(db, Offer("local", 2, 1, GIB, GIB)) == [last]
    assert walks == ["job_queue"]


def test_a_long_queue_of_one_definition_that_does_not_fit_is_left_out(db: Db, monkeypatch) -> None:
    monkeypatch.setattr(choose, "_PASSED_OVER", 5)
    for _ in range(20):
        add(db, cpus=2)
    last = add(db)
    assert pick(db, Offer("local", 2, 1, GIB, GIB)) == [last]
