"""Counts that are kept up to date instead of counted, and answers that are worth remembering."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.hub import metrics
from pilotage.hub.api import overview
from pilotage.hub.api.overview import JobCounts
from pilotage.hub.api.reader import Memo
from pilotage.hub.metrics import Family
from pilotage.job import moves, records
from pilotage.job.model import Command, JobSpec, NewJob
from pilotage.store import Db, connect

SPEC = JobSpec(Command(("true",)), "job")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Db]:
    opened = connect(tmp_path / "store.db")
    yield opened
    opened.close()


def add(db: Db, count: int, now: float = 100.0) -> list[int]:
    with db.transaction():
        found = [records.add(db, NewJob(SPEC), now) for _ in range(count)]
    return [job for job in found if job]


def cancel(db: Db, *jobs: int) -> None:
    with db.transaction():
        for job in jobs:
            moves.cancel(db, records.get(db, job), now=100.0)


def counted(db: Db) -> dict[str, int]:
    return dict(db.rows("api_counts"))


def test_counts_follow_every_move_without_counting_again(db, monkeypatch):
    found = JobCounts()
    jobs = add(db, 10)
    found.catch_up(db, 100.0)
    monkeypatch.setattr(found, "_count", None)
    cancel(db, *jobs[:3])
    add(db, 2)
    with db.transaction():
        moves.hold(db, records.get(db, jobs[5]), now=100.0)
        moves.release(db, records.get(db, jobs[5]), now=100.0)
        moves.again(db, records.get(db, jobs[0]), now=100.0)
    found.catch_up(db, 100.0)
    assert dict(found.counts) == counted(db) == {"queued": 10, "cancelled": 2}
    assert (found.submitted, dict(found.ended)) == (2, {"cancelled": 3})


def test_who_is_far_behind_counts_anew_and_forgets_no_end(db, monkeypatch):
    monkeypatch.setattr(overview, "_MOST_LINES", 5)
    found = JobCounts()
    jobs = add(db, 20)
    found.catch_up(db, 100.0)
    cancel(db, *jobs[:10])
    monkeypatch.setattr(found, "_follow", None)
    found.catch_up(db, 100.0)
    assert dict(found.counts) == counted(db)
    assert dict(found.ended) == {"cancelled": 10}


def test_jobs_that_are_forgotten_leave_the_counts_in_time(db):
    found = JobCounts()
    add(db, 5)
    found.catch_up(db, 100.0)
    with db.transaction():
        db.run("job_purge", ids="[1, 2]")
    found._recount = 0.0
    found.catch_up(db, 100.0)
    assert dict(found.counts) == {"queued": 3}


def test_a_connection_that_sees_an_earlier_moment_changes_nothing(db, tmp_path):
    late = connect(tmp_path / "store.db", readonly=True)
    found = JobCounts()
    add(db, 3)
    with late.savepoint():
        assert late.value("job_last") == 3
        add(db, 4)
        found.catch_up(db, 100.0)
        found.catch_up(late, 100.0)
    found.catch_up(db, 100.0)
    assert dict(found.counts) == {"queued": 7}
    late.close()


def test_rates_are_of_the_last_minute_also_at_the_first_look(db):
    add(db, 30, now=40.0)
    add(db, 60, now=80.0)
    found = JobCounts()
    found.catch_up(db, 110.0)
    assert found.rates(110.0).submitted == pytest.approx(2.0)
    found.catch_up(db, 200.0)
    assert found.rates(200.0).submitted == 0.0


def test_what_was_costly_to_read_is_remembered(monkeypatch):
    ticks = iter([0.0, 0.5, 5.0, 10.0, 10.5])
    monkeypatch.setattr("pilotage.hub.api.reader.time.monotonic", lambda: next(ticks))
    reads = iter(range(10))
    memo = Memo(least=1.0, times=20.0)
    # The first took half a second, and counts for ten.
    assert [memo.get("a", lambda: next(reads)) for _ in range(3)] == [0, 0, 1]


def test_metrics_are_written_as_prometheus_reads_them():
    families = [
        Family("jobs", "gauge", "Jobs by state.", {"done": 2, "queued": 1_000_000}, "state"),
        Family("up_total", "counter", "Ups.", 0.25),
    ]
    assert metrics.write(families) == (
        "# HELP jobs Jobs by state.\n# TYPE jobs gauge\n"
        'jobs{state="done"} 2\njobs{state="queued"} 1000000\n'
        "# HELP up_total Ups.\n# TYPE up_total counter\nup_total 0.25\n"
    )
