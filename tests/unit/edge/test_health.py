"""How a site is, judged by its heartbeats: every word, whose clock counts, and what is learned."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.bus import wire
from pilotage.bus.model import BatchQueue, Heartbeat, Scheduler
from pilotage.edge import health, view
from pilotage.store import Db, connect

DAY = 86_400.0
ROOM = 10**12


def beat(**more: Any) -> Heartbeat:
    plain = {"site": "mira", "time": 1000.0, "version": "1.0", "epoch": 2, "since": 900.0}
    return Heartbeat(**{**plain, "disk_free": ROOM, **more})


def sick(words: str = "slurmctld does not answer") -> Scheduler:
    return Scheduler(batch="slurm", well=False, text=words)


@pytest.mark.parametrize(
    "found, quiet, word",
    [
        (beat(), 0.0, "well"),
        (beat(), 90.0, "well"),
        (beat(), 90.1, "silent"),
        (beat(draining=True), 1.0, "draining"),
        (beat(draining=True), 91.0, "silent"),
        (beat(scheduler=sick()), 1.0, "trouble"),
        (beat(scheduler=sick(), draining=True), 1.0, "trouble"),
        (beat(disk_free=999_999_999), 1.0, "trouble"),
        (beat(disk_free=0), 1.0, "trouble"),
        (beat(certificate_days=13.9), 1.0, "well"),
        (beat(certificate_days=-0.1), 1.0, "trouble"),
        (beat(certificate_days=0.0001), 60.0, "trouble"),
    ],
)
def test_a_site_is_one_of_four_things(found, quiet, word):
    assert health.judge(found, quiet, []) == word


@pytest.mark.parametrize(
    "word, found, age, said",
    [
        ("well", beat(), 3.0, ""),
        ("well", beat(certificate_days=20), 3.0, ""),
        ("well", beat(certificate_days=13.5), 0.0, "its certificate expires in 13 d 12 h"),
        ("draining", beat(draining=True), 3.0, "takes no more jobs"),
        ("silent", beat(), 192.0, "no heartbeat for 3 m 12 s"),
        ("trouble", beat(scheduler=sick()), 3.0, "slurm: slurmctld does not answer"),
        ("trouble", beat(scheduler=sick("")), 3.0, "slurm: does not answer"),
        ("trouble", beat(disk_free=2**20), 3.0, "1.0 MiB of disk are free for jobs"),
        ("trouble", beat(certificate_days=-1), 3.0, "its certificate has expired"),
        (
            "trouble",
            beat(certificate_days=-1, scheduler=sick("down"), draining=True),
            3.0,
            "slurm: down; its certificate has expired; takes no more jobs",
        ),
    ],
)
def test_a_sentence_says_why(word, found, age, said):
    assert health.tell(word, found, age) == said


def test_a_certificate_goes_on_to_end_while_no_heartbeat_comes():
    assert health.warned(beat(certificate_days=15), 2 * DAY)
    assert not health.warned(beat(certificate_days=15), 0.0)
    assert not health.warned(beat(), 0.0)
    assert health.days(beat(certificate_days=15), 16 * DAY) == -1


def rhythm(times: list[float]) -> list[float]:
    gaps: list[float] = []
    for before, after in itertools.pairwise(times):
        gaps = health.learn(gaps, beat(time=before), beat(time=after))
    return gaps


def test_the_rhythm_is_learned_and_neither_a_gap_nor_an_early_one_spoils_it():
    assert health.interval([]) == health.USUAL_S
    steady = rhythm([300.0 * n for n in range(1, 8)])
    assert health.interval(steady) == 300
    assert health.patience(steady) == 900
    assert health.interval(rhythm([0, 300])) == health.interval(rhythm([0, 300, 600]))
    assert health.interval(rhythm([0, 30, 60, 62, 90, 120])) == 30
    assert health.interval(rhythm([0, 30, 60, 900, 930, 960])) == 30
    # A connection that comes and goes has a heartbeat sent each time.
    assert health.interval(rhythm([0, 30, 60, 62, 64, 66])) == 30
    assert health.interval(rhythm([0, 2, 4])) == health.USUAL_S
    # Fast ones get some patience all the same.
    assert health.interval(rhythm([1.0 * n for n in range(1, 9)])) == 1
    assert health.patience(rhythm([1.0 * n for n in range(1, 9)])) == 10


def test_what_is_no_rhythm_is_not_learned():
    assert rhythm([100.0, 50.0]) == []
    assert rhythm([100.0, 100.0]) == []
    assert rhythm([100.0, 100.0 + 2 * 3600]) == []
    other = beat(time=1060.0, since=1050.0)
    assert health.learn([30.0], beat(), other) == [30.0]
    assert health.learn([30.0], beat(), beat(time=1060.0, epoch=3)) == [30.0]


def test_an_agent_that_was_followed_by_another_is_not_heard():
    old, new = beat(epoch=1), beat(epoch=2)
    assert health.stale(new, old, 1.0, [])
    assert not health.stale(old, new, 1.0, [])
    assert not health.stale(new, new, 1.0, [])
    # A site that began to count anew is heard once the other is silent.
    assert not health.stale(new, old, 91.0, [])


@given(
    st.floats(0, 1e11), st.floats(0, 1e5), st.lists(st.floats(0.5, 3600), max_size=5), st.booleans()
)
def test_the_clock_of_the_site_does_not_matter(skewed, quiet, gaps, draining):
    here = health.judge(beat(draining=draining), quiet, gaps)
    assert health.judge(beat(draining=draining, time=skewed), quiet, gaps) == here
    said = health.tell(here, beat(draining=draining), quiet)
    assert health.tell(here, beat(draining=draining, time=skewed), quiet) == said


# -- what commands and the page see --------------------------------------------------------------


@pytest.fixture
def db(tmp_path: Path) -> Db:
    return connect(tmp_path / "store.db")


def put(db: Db, state: str = "well", heard: float = 1000.0, **more: Any) -> None:
    db.run(
        "edges_heard", name="mira", speaker="site", heard=heard, state=state, since=500.0,
        gaps="[60.0]", body=wire.encode(beat(**more)).decode(),
    )  # fmt: skip


def test_nothing_is_known_while_nobody_listens(db):
    assert view.look(db, 0.0).edges == []
    put(db)
    for seen, now in (("never", 1001.0), (1000.0, 1100.0)):
        if seen != "never":
            db.run("edges_listen", trouble="", since=10.0, now=seen)
        found = view.look(db, now)
        assert "pilotage up" in found.broker.trouble
        assert found.edges[0].state == "unknown"
        assert found.edges[0].words == "was well when last seen"


def test_a_broker_that_is_away_makes_no_site_silent(db):
    put(db, heard=1000.0)
    db.run("edges_listen", trouble="connection refused", since=1010.0, now=9000.0)
    found = view.look(db, 9001.0)
    assert (found.broker.trouble, found.broker.since) == ("connection refused", 1010.0)
    assert found.edges[0].state == "unknown"
    db.run("edges_listen", trouble="", since=9002.0, now=9002.0)
    assert view.look(db, 9003.0).edges[0].state == "well"


def test_all_that_a_heartbeat_says_is_seen(db):
    counts = {"running": 3, "queued": 2, "done": 40}
    put(db, counts=counts, certificate_days=3.0, outbox=7, time=5000.0, since=4000.0)
    db.run("edges_listen", trouble="", since=10.0, now=1000.0)
    one = view.look(db, 1010.0).edges[0]
    assert (one.live, one.jobs["done"], one.outbox, one.epoch, one.version) == (5, 40, 7, 2, "1.0")
    assert (one.interval, one.age, one.warned) == (60.0, 1010.0, True)
    assert one.speaker == "site"


def test_a_heartbeat_of_another_version_is_left_out(db):
    put(db)
    db.run(
        "edges_heard", name="old", speaker="", heard=1.0, state="well", since=1.0, gaps="[]",
        body='{"kind": "heartbeat", "site": "old", "new_field": 1}',
    )  # fmt: skip
    assert [one.name for one in view.look(db, 1.0).edges] == ["mira"]


def test_what_a_site_reports_of_its_queues_is_an_offer_with_its_age(db):
    queues = (
        BatchQueue(
            name="debug-q", nodes=4, free_nodes=3, cpus=16, memory=2**35, time=3600.0, jobs=2
        ),
        BatchQueue(name="main", default=True, nodes=90, free_nodes=1, cpus=64, memory=2**38),
        BatchQueue(name="old", open=False, nodes=999, free_nodes=999, cpus=999),
    )
    put(db, scheduler=Scheduler(batch="slurm", queues=queues, seen=990.0), counts={"running": 3})
    db.run("edges_listen", trouble="", since=10.0, now=1000.0)
    one = view.look(db, 1010.0).edges[0]
    assert view.offer(one, 1015.0) == {
        "age": 10.0, "jobs": 3, "disk": one.disk_free, "queues": ["debug-q", "main"], "nodes": 90,
        "free_nodes": 1, "cpus": 64, "memory": 2**38, "free_nodes_debug_q": 3,
        "free_nodes_main": 1, "time_limit_debug_q": 3600.0, "job_limit_debug_q": 2,
    }  # fmt: skip


def test_a_site_that_shows_no_queues_says_nothing_of_them(db):
    put(db)
    one = view.look(db, 1010.0).edges[0]
    assert view.offer(one, 1010.0).keys() == {"age", "jobs", "disk"}
