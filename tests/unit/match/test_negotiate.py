"""The matchmaker: what fits, what is fair, what is urgent, and that nobody starves."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotage.job.model import App, Command, JobSpec, Resources
from pilotage.match import turn as patience
from pilotage.match.classes import PickedJob, QueuedJob
from pilotage.match.negotiate import Matcher
from pilotage.match.place import Lease, Place
from pilotage.match.share import Shares, Slice

GIB = 1 << 30


class Bench:
    """A matchmaker with a clock and jobs by number."""

    def __init__(self, slices: dict[str, Slice] | None = None, patience: float = 10.0) -> None:
        self.matcher = Matcher(Shares(3600.0, slices), patience=patience)
        self.now = 1000.0
        self._numbers = itertools.count(1)

    def queue(self, count: int = 1, owner: str = "ann", **facts: Any) -> list[int]:
        wants = {key: facts.pop(key) for key in ("requirements", "rank") if key in facts}
        priority, limit = facts.pop("priority", 0), facts.pop("limit", "")
        site = "a" if facts.pop("site_named", False) else ""
        spec = JobSpec(Command(("x",)), "x", resources=Resources(**facts), site=site, **wants)
        cluster = self.matcher.clusters.of(spec, owner)
        made = [next(self._numbers) for _ in range(count)]
        for job in made:
            self.matcher.add(QueuedJob(job, priority, owner, cluster, limit), self.now)
        return made

    def place(self, number: int = 1, cpus: int = 4, **facts: Any) -> Place:
        sizes = {"memory": 64 * GIB, "disk": 100 * GIB, "gpus": 0}
        sizes |= {key: facts.pop(key) for key in ("memory", "disk", "gpus") if key in facts}
        until = {"until": facts.pop("until")} if "until" in facts else {}
        attributes = {"site": "a", "host": f"h{number}", "cpus": cpus, **facts}
        one = Place(number, attributes["site"], attributes, cpus=cpus, **sizes, **until)
        one.taking = True
        self.matcher.join(one)
        return one

    def start(self, place: Place, **facts: Any) -> list[int]:
        return self.hold(place, self.matcher.pick(place, self.now, **facts))

    def hold(self, place: Place, picked: list[PickedJob]) -> list[int]:
        for one in picked:
            self.matcher.grant(place, one, Lease(one.job, 1, 1, one.priority, self.now))
        return [one.job for one in picked]

    def end(self, place: Place, *jobs: int, wall: float = 1.0) -> None:
        self.matcher.free(place, [(job, wall) for job in jobs or list(place.leases)], self.now)

    def serve(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for place, picked in self.matcher.serve(self.now):
            found.setdefault(place.number, []).extend(self.hold(place, picked))
        return found


def test_a_place_is_carved_as_jobs_need():
    bench = Bench()
    place = bench.place(cpus=64, memory=256 * GIB, gpus=2)
    large = bench.queue(3, cpus=16, memory=100 * GIB)
    gpus = bench.queue(3, gpus=1)
    small = bench.queue(100)
    started = bench.start(place)
    assert [job in started for job in large] == [True, True, False]
    assert [job in started for job in gpus] == [True, True, False]
    assert len(set(started) & set(small)) == 64 - 32 - 2
    assert (place.free_cpus, place.free_memory, place.free_gpus) == (0, 56 * GIB, 0)
    bench.end(place)
    assert (place.free_cpus, place.free_memory, place.free_gpus) == (64, 256 * GIB, 2)


def test_the_most_urgent_of_an_owner_starts_first_and_then_the_oldest():
    bench = Bench()
    place = bench.place(cpus=3)
    first = bench.queue(2)
    urgent = bench.queue(1, priority=5, memory=GIB)
    bench.queue(1, priority=-1)
    assert bench.start(place) == urgent + first


def test_requirements_choose_places_and_a_misfit_costs_nothing():
    bench = Bench()
    here, there = bench.place(1, site="a"), bench.place(2, site="b")
    bench.queue(1000, requirements="site == 'nowhere'")
    picky = bench.queue(1, requirements="site == 'b' and cpus >= 2")
    assert bench.start(here) == []
    assert bench.start(there) == picky


def test_a_hundred_thousand_that_match_nothing_do_not_hide_sixty_that_do():
    bench = Bench()
    place = bench.place(cpus=200)
    bench.queue(100_000, memory=1000 * GIB)
    runnable = bench.queue(60)
    assert bench.start(place) == runnable


def test_rank_sends_jobs_to_the_places_they_like_best():
    bench = Bench()
    slow, fast = bench.place(1, speed=1), bench.place(2, speed=9)
    for place in (slow, fast):
        bench.matcher.park(place)
    jobs = bench.queue(4, rank="speed")
    assert bench.serve() == {2: jobs}
    more = bench.queue(1, rank="speed")
    assert bench.serve() == {1: more}


def test_jobs_that_come_later_find_places_that_wait():
    bench = Bench()
    places = [bench.place(number, cpus=1) for number in range(1, 4)]
    for place in places:
        assert bench.start(place) == []
        bench.matcher.park(place)
    jobs = bench.queue(5)
    assert bench.serve() == {1: jobs[:1], 2: jobs[1:2], 3: jobs[2:3]}


def test_a_limit_holds_across_places_and_lets_go():
    bench = Bench()
    one, other = bench.place(1), bench.place(2)
    jobs = bench.queue(5, limit="camera:2")
    assert bench.start(one) == jobs[:2]
    assert bench.start(other) == []
    bench.end(one, jobs[0])
    assert bench.start(other) == [jobs[2]]


def test_owners_get_the_same_however_much_they_queue():
    bench = Bench()
    place = bench.place(cpus=1)
    bench.queue(1000, owner="greedy")
    bench.queue(20, owner="modest")
    started: Counter[str] = Counter()
    for _ in range(40):
        (job,) = bench.start(place)
        started["modest" if job > 1000 else "greedy"] += 1
        bench.now += 10
        bench.end(place, job, wall=10.0)
    assert started == {"modest": 20, "greedy": 20}


def test_a_quota_bounds_a_user_and_a_group():
    bench = Bench({"lab": Slice(1.0, 3), "lab/ann": Slice(1.0, 2)})
    place = bench.place(cpus=10)
    ann = bench.queue(5, owner="lab/ann")
    bob = bench.queue(5, owner="lab/bob")
    started = bench.start(place)
    assert sorted(started) == sorted(ann[:2] + bob[:1])


def test_what_cannot_end_before_the_place_goes_is_not_started():
    bench = Bench()
    place = bench.place(until=1100.0)
    bench.queue(1, time=200.0)
    short = bench.queue(1, time=50.0)
    assert bench.start(place) == short


def test_a_delayed_job_waits_for_its_time():
    bench = Bench()
    place = bench.place()
    cluster = bench.matcher.clusters.of(JobSpec(Command(("x",)), "x"), "ann")
    bench.matcher.add(QueuedJob(7, 0, "ann", cluster, "", 1005.0), bench.now)
    assert bench.matcher.due(bench.now) == 1005.0
    assert bench.start(place) == []
    assert bench.matcher.due(1005.0) is None
    assert bench.start(place) == [7]


def test_a_large_job_gets_a_place_although_small_ones_never_end():
    bench = Bench(patience=10.0)
    place = bench.place(cpus=4)
    bench.queue(500, time=100.0)
    (large,) = bench.queue(1, cpus=4, time=50.0, owner="bob")
    when = 0.0
    for turn in range(400):
        bench.now += 5.0
        over = [job for job, lease in place.leases.items() if bench.now - lease.started >= 100.0]
        bench.end(place, *over, wall=100.0) if over else None
        patience.keep_room(bench.matcher, bench.now)
        if large in bench.start(place):
            when = bench.now
            break
        assert turn < 399
    assert when - 1000.0 < 300.0


def test_short_jobs_backfill_beside_a_reservation_and_long_ones_do_not():
    bench = Bench(patience=1.0)
    place = bench.place(cpus=4)
    (running,) = bench.queue(1, cpus=2, time=100.0)
    assert bench.start(place) == [running]
    (large,) = bench.queue(1, cpus=4, time=10.0, owner="bob")
    assert bench.start(place) == []
    bench.now += 5
    patience.keep_room(bench.matcher, bench.now)
    assert place.reserved is not None
    bench.queue(1, cpus=1, time=500.0)
    short = bench.queue(1, cpus=1, time=20.0)
    assert bench.start(place) == short
    bench.now += 95
    bench.end(place, running, *short, wall=95.0)
    assert bench.start(place) == [large]


def test_preemption_stops_the_youngest_of_the_least_urgent():
    bench = Bench(patience=1.0)
    place = bench.place(cpus=3)
    old = bench.queue(2)
    bench.start(place)
    bench.now += 50
    young = bench.queue(1)
    bench.start(place)
    bench.queue(1, priority=9, cpus=1)
    assert bench.start(place) == []
    bench.now += 5
    victims = [lease.job for _, lease in patience.preempt(bench.matcher, bench.now)]
    assert victims == young
    assert set(old) < set(place.leases)


def test_a_place_that_leaves_frees_what_its_jobs_counted_for():
    bench = Bench()
    place = bench.place()
    jobs = bench.queue(2, limit="key:1")
    assert bench.start(place) == jobs[:1]
    bench.matcher.leave(1, bench.now)
    other = bench.place(2)
    assert bench.matcher.bounds.limited == {}
    assert bench.start(other) == jobs[1:]


def test_a_job_that_could_not_start_costs_its_owner_nothing():
    bench = Bench()
    place = bench.place(cpus=1)
    bench.queue(3, owner="ann")
    for _ in range(3):
        (job,) = bench.start(place)
        bench.matcher.free(place, [(job, None)], bench.now)
    assert bench.matcher.shares.usage("ann", bench.now) < 0.001


def test_a_job_that_was_lost_costs_the_time_it_was_held():
    bench = Bench()
    place = bench.place(cpus=2)
    bench.queue(1, cpus=2, time=7200.0)
    bench.start(place)
    bench.now += 100.0
    bench.matcher.leave(1, bench.now)
    assert bench.matcher.shares.usage("ann", bench.now) == pytest.approx(200.0, rel=0.05)


def test_ahead_takes_plain_jobs_beyond_the_free_cores_and_no_others():
    bench = Bench()
    place = bench.place(cpus=2)
    bench.queue(1, memory=GIB, priority=1)
    bench.queue(10)
    assert len(bench.start(place, ahead=3)) == 5
    bench.queue(1, memory=GIB, priority=9)
    assert bench.start(place, ahead=3) == []


@pytest.mark.parametrize("count", [1, 3])
def test_a_new_attribute_classes_the_places_anew(count):
    bench = Bench()
    places = [bench.place(number, colour=f"c{number}") for number in range(1, 4)]
    bench.queue(1)
    assert len(bench.matcher.classes.views) == 1
    red = bench.queue(count, requirements="colour == 'c2'")
    assert len(bench.matcher.classes.views) == 3
    assert bench.start(places[1])[-count:] == red


JOB = st.tuples(
    st.sampled_from(["ann", "bob", "lab/cid"]), st.integers(1, 6), st.integers(0, 3),
    st.sampled_from(["", "", "k:1", "m:2"]), st.sampled_from(["", "site == 'a'", "cpus >= 4"]),
    st.sampled_from([None, 20.0]),
)  # fmt: skip
STEP = st.one_of(
    st.tuples(st.just("queue"), JOB),
    st.tuples(st.just("pick"), st.integers(1, 3)),
    st.tuples(st.just("end"), st.integers(1, 3)),
    st.tuples(st.just("round"), st.just(0)),
)


STEPS = st.lists(STEP, max_size=60)


@given(STEPS)
def test_whatever_happens_nothing_is_lost_doubled_or_overbooked(steps):
    _nothing_is_lost_doubled_or_overbooked(steps)


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=150)
def test_whatever_happens_often_nothing_is_lost_doubled_or_overbooked(steps):
    _nothing_is_lost_doubled_or_overbooked(steps)


def _nothing_is_lost_doubled_or_overbooked(steps: list[tuple[str, Any]]) -> None:
    bench = Bench({"ann": Slice(1.0, 5)}, patience=5.0)
    places = {1: bench.place(1, 4), 2: bench.place(2, 8, site="b"), 3: bench.place(3, 2)}
    queued: set[int] = set()
    started: set[int] = set()
    for what, value in steps:
        bench.now += 3.0
        if what == "queue":
            owner, cpus, priority, limit, wish, wall = value
            queued |= set(bench.queue(1, owner, cpus=cpus, priority=priority, limit=limit,
                                      requirements=wish, time=wall))  # fmt: skip
        elif what == "pick":
            new = bench.start(places[value])
            assert not started & set(new)
            started |= set(new)
        elif what == "end":
            bench.end(places[value])
        else:
            patience.keep_room(bench.matcher, bench.now)
            patience.charge_running(bench.matcher, bench.now)
        running = [(place, job) for place in places.values() for job in place.leases]
        assert bench.matcher.queued() == len(queued) - len(started)
        assert all(place.free_cpus >= 0 for place in places.values())
        counts = Counter(place.kinds[job].limit for place, job in running)
        assert counts["k:1"] <= 1
        assert counts["m:2"] <= 2
        ann = sum(place.kinds[job].cluster.cpus for place, job in running
                  if place.kinds[job].owner == "ann")  # fmt: skip
        assert ann <= 5
    # What is left starts as soon as there is room, but for what fits nowhere.
    for _ in range(200):
        bench.now += 30.0
        for place in places.values():
            bench.end(place)
            started |= set(bench.start(place))
        patience.keep_room(bench.matcher, bench.now)
    stuck = queued - started
    homeless = [bucket for bucket in bench.matcher.buckets.values() if bucket]
    assert sum(map(len, homeless)) == len(stuck)
    for bucket in homeless:
        beyond_quota = bucket.owner == "ann" and bucket.cluster.cpus > 5
        assert beyond_quota or bench.matcher.classes.hopeless(bucket.cluster)


def test_a_place_that_takes_no_more_is_not_kept_for_a_large_job():
    bench = Bench()
    first, second = bench.place(1, cpus=4), bench.place(2, cpus=4)
    bench.queue(8)
    bench.start(first), bench.start(second)
    bench.end(first, *list(first.leases)[:1])
    (large,) = bench.queue(1, cpus=4)
    bench.start(first)
    bench.now += 20
    patience.keep_room(bench.matcher, bench.now)
    kept = next(place for place in (first, second) if place.reserved)
    kept.taking = False
    patience.keep_room(bench.matcher, bench.now)
    patience.keep_room(bench.matcher, bench.now)
    other = second if kept is first else first
    assert kept.reserved is None
    assert other.reserved is not None
    bench.end(other)
    assert bench.start(other)[0] == large


def test_a_kept_place_starts_nothing_beyond_a_quota_and_is_let_go():
    bench = Bench({"ann": Slice(quota=4)})
    place, other = bench.place(1, cpus=4), bench.place(2, cpus=4)
    running = bench.queue(1)
    bench.start(place)
    bench.queue(1, cpus=4)
    assert bench.start(place) == []
    bench.now += 20
    patience.keep_room(bench.matcher, bench.now)
    assert (place.reserved, other.reserved) == (None, None)
    (small,) = bench.queue(1, owner="bob", cpus=3)
    assert bench.start(place) == [small]
    assert list(place.leases) == [*running, small]


def test_a_place_that_waits_hears_when_a_quota_has_room_again():
    bench = Bench({"ann": Slice(quota=1)})
    here, there = bench.place(1, cpus=4), bench.place(2, cpus=4, site="b")
    bench.queue(1, requirements="site == 'a'")
    (later,) = bench.queue(1, requirements="site == 'b'")
    assert len(bench.start(here)) == 1
    assert bench.start(there) == []
    bench.matcher.park(there)
    assert bench.serve() == {}
    bench.end(here)
    assert bench.serve() == {2: [later]}


def test_a_new_job_starts_although_the_first_place_that_waits_is_kept_for_another():
    bench = Bench()
    kept, free = bench.place(1, cpus=2), bench.place(2, cpus=8)
    bench.queue(1)
    bench.start(kept)
    (large,) = bench.queue(1, cpus=2, requirements="host == 'h1'")
    assert bench.start(kept) == []
    bench.now += 20
    patience.keep_room(bench.matcher, bench.now)
    assert kept.reserved
    bench.serve()
    bench.matcher.park(kept)
    bench.matcher.park(free)
    (small,) = bench.queue(1)
    assert bench.serve() == {2: [small]}
    bench.end(kept)
    assert bench.start(kept) == [large]


def test_room_is_made_once_for_an_urgent_job_and_kept_for_it():
    bench = Bench()
    places = [bench.place(number, cpus=1) for number in range(1, 6)]
    bench.queue(5, owner="bob")
    for place in places:
        bench.start(place)
    bench.queue(20, owner="bob")
    (urgent,) = bench.queue(1, priority=5)
    bench.now += 20
    chosen = patience.preempt(bench.matcher, bench.now)
    ((place, lease),) = chosen
    lease.stopping = bench.now
    bench.now += 1
    assert patience.preempt(bench.matcher, bench.now) == []
    bench.end(place, lease.job)
    assert bench.start(place) == [urgent]


def test_nothing_is_stopped_for_a_job_that_may_not_start():
    bench = Bench()
    place = bench.place(cpus=2)
    bench.queue(1, limit="key:1")
    bench.queue(1)
    bench.start(place)
    bench.queue(1, priority=5, limit="key:1")
    bench.now += 20
    assert patience.preempt(bench.matcher, bench.now) == []


def test_owners_who_are_given_back_what_they_were_charged_do_not_pile_up():
    bench = Bench()
    busy, idle = bench.place(1, cpus=1, kind="a"), bench.place(2, cpus=1, kind="b")
    bench.queue(1, owner="bob", requirements="kind == 'b'", cpus=1)
    bench.queue(1, owner="ann", requirements="kind == 'b'", cpus=1)
    bench.queue(500, owner="ann", requirements="kind == 'a'")
    for _ in range(400):
        bench.start(busy)
        bench.end(busy, wall=0.001)
    assert len(bench.matcher.classes.of(idle)._owners) < 100


def test_what_has_no_jobs_any_more_is_forgotten():
    bench = Bench()
    place = bench.place(cpus=1, memory=1 << 40)
    (kept,) = bench.queue(1, requirements="site == 'a'")
    bench.start(place)
    for number in range(600):
        bench.queue(1, memory=number + 1, limit=f"key{number}:1", requirements=f"x{number} == 1")
    assert bench.matcher.tidy() is not None
    assert len(bench.matcher.buckets) == 601
    for bucket in list(bench.matcher.buckets.values()):
        while bucket:
            bucket.pop()
    for number in range(2000):
        bench.queue(1, memory=number + 1, limit=f"other{number}:1")
    for bucket in list(bench.matcher.buckets.values()):
        while bucket:
            bucket.pop()
    bench.matcher.tidy()
    assert len(bench.matcher.buckets) == len(bench.matcher.clusters) == 1
    assert len(bench.matcher.classes.views) == 1
    bench.end(place, kept)
    (new,) = bench.queue(1, memory=5)
    assert bench.start(place) == [new]


def test_a_place_for_which_there_is_nothing_is_searched_once(monkeypatch):
    bench = Bench()
    place = bench.place(cpus=2)
    for number in range(200):
        bench.queue(1, cpus=4, memory=number + 1)
    large = bench.place(2, cpus=4)
    bench.start(place)
    looked: list[Any] = []
    allowed = bench.matcher._allowed

    def watched(*args: Any) -> bool:
        looked.append(args)
        return allowed(*args)

    monkeypatch.setattr(bench.matcher, "_allowed", watched)
    assert bench.start(place) == []
    assert looked == []
    (small,) = bench.queue(1)
    assert bench.start(place) == [small]
    assert len(bench.start(large)) == 1


def test_jobs_with_an_image_go_where_there_is_something_to_run_it():
    bench = Bench()
    plain = bench.place(1, sandboxes=["bubblewrap"])
    fitted = bench.place(2, sandboxes=["bubblewrap", "podman"])
    spec = JobSpec(Command(("x",)), "x", image="docker.io/library/busybox")
    bench.matcher.add(QueuedJob(7, 0, "ann", bench.matcher.clusters.of(spec, "ann")), bench.now)
    assert bench.start(plain) == []
    assert bench.start(fitted) == [7]


def test_what_is_true_and_what_is_one_are_of_different_classes():
    bench = Bench()
    bench.queue(1, requirements="fast == true")
    one, two = bench.place(1, fast=1), bench.place(2, fast=True)
    assert bench.matcher.classes.of(one) is not bench.matcher.classes.of(two)


def test_a_job_that_names_its_host_does_not_make_a_class_of_every_place():
    bench = Bench()
    (pinned,) = bench.queue(1, requirements="host == 'h250'")
    places = [bench.place(number, cpus=1) for number in range(1, 301)]
    assert len(bench.matcher.classes.views) < 150
    plain = bench.queue(299)
    started = {place.number: bench.start(place) for place in places}
    assert started[250] == [pinned]
    assert sorted(job for jobs in started.values() for job in jobs) == [pinned, *plain]
    (nowhere,) = bench.queue(1, requirements="host == 'h999'")
    stuck = [one for one in bench.matcher.buckets.values() if one and one.first[0] == nowhere]
    assert bench.matcher.classes.hopeless(stuck[0].cluster)


def test_what_did_not_fit_a_full_place_starts_when_it_is_empty_again():
    bench = Bench()
    place = bench.place(cpus=2)
    assert bench.start(place) == []
    jobs = bench.queue(4)
    assert bench.start(place) == jobs[:2]
    assert bench.start(place) == []
    bench.end(place)
    assert bench.start(place) == jobs[2:]


def test_who_stands_behind_one_that_a_quota_bars_is_not_forgotten():
    bench = Bench({"ann": Slice(1.0, 4)})
    small, large = bench.place(1, cpus=1), bench.place(2, cpus=4)
    (first,) = bench.queue(1)
    (second,) = bench.queue(1, cpus=4)
    (third,) = bench.queue(1, cpus=4, limit="key:1")
    assert bench.start(small) == [first]
    assert bench.start(large) == []
    bench.end(small)
    assert bench.start(large) == [second]
    bench.end(large)
    assert bench.start(large) == [third]


# -- sites -----------------------------------------------------------------------------------------


def test_what_runs_at_a_site_is_charged_from_when_it_began_to_run():
    bench = Bench()
    place = bench.place(batch_queue=True, only_applications=False)
    place.begins = "staging_in"
    bench.queue(site_named=True)
    (job,) = bench.start(place)
    advance = bench.matcher.shares.total("ann")
    bench.now += 1000.0
    patience.charge_running(bench.matcher, bench.now)
    assert bench.matcher.shares.total("ann") == advance, "it waits in the queue there"
    place.leases[job].began = bench.now
    bench.now += 500.0
    patience.charge_running(bench.matcher, bench.now)
    assert bench.matcher.shares.total("ann") == 500.0
    bench.end(place, job, wall=600.0)
    assert bench.matcher.shares.total("ann") == 600.0


def test_a_job_that_asks_for_applications_may_go_to_any_site_that_has_it():
    clusters = Bench().matcher.clusters
    wanted = '"sim" in applications and free_nodes > 2'
    spec = JobSpec(App("sim"), "x", requirements=wanted)
    site = {"batch_queue": True, "only_applications": True, "applications": ["sim"]}
    assert clusters.of(spec, "ann").accepts(site | {"free_nodes": 3})
    assert not clusters.of(spec, "ann").accepts(site | {"free_nodes": 1})
    assert not clusters.of(spec, "ann").accepts({"site": "pilot"})
    for other in (
        JobSpec(App("sim"), "x"),
        JobSpec(App("sim"), "x", requirements="free_nodes > 2"),
        JobSpec(Command(("x",)), "x", requirements=wanted),
        JobSpec(App("other"), "x", requirements=wanted),
    ):
        assert not clusters.of(other, "ann").accepts(site | {"free_nodes": 3})
