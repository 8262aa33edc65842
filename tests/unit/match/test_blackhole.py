"""The guard finds black holes soon, says so, lets them try again, and spares good nodes."""

from __future__ import annotations

import random

from msgspec.structs import replace

from pilotage.job.retry import AttemptEnd
from pilotage.match.blackhole import BlackHoleGuard, BlackHoleRules

NOW = 1.8e9


def fleet(guard: BlackHoleGuard, nodes: int, kind: str = "a", now: float = NOW) -> float:
    """Let good nodes end one job each, a second apart."""
    for number in range(nodes):
        now += 1
        guard.saw(f"good-{number}", kind, ok=True, wall=600.0, now=now)
    return now


def until_condemned(
    guard: BlackHoleGuard, node: str, kind: str, now: float, most: int = 1000
) -> int:
    for count in range(1, most + 1):
        guard.saw(node, kind, ok=False, wall=1.0, now=now + count)
        if guard.verdict(node, now + count):
            return count
    return 0


def test_a_black_hole_among_fifty_nodes_is_found_after_few_jobs_and_says_so():
    guard = BlackHoleGuard()
    now = fleet(guard, 49)
    count = until_condemned(guard, "hole", "a", now)
    assert 5 <= count <= 8
    assert guard.verdict("hole", now + count) == (
        f"{count} of {count} payloads failed here after 1.0 s, while the same kind did well on "
        "49 of 49 other nodes; it gets no work, and a job is tried in 10 m"
    )
    assert guard.allowance("hole", now + count) == 0
    assert guard.condemned() == ["hole"]
    assert all(guard.allowance(f"good-{number}", now) is None for number in range(49))


def test_a_bad_job_does_not_condemn_good_nodes():
    guard = BlackHoleGuard()
    now = fleet(guard, 50)
    for turn in range(2000):
        now += 0.1
        guard.saw(f"good-{turn % 50}", "bad", ok=False, wall=1.0, now=now)
        guard.saw(f"good-{turn * 7 % 50}", "a", ok=True, wall=600.0, now=now)
    assert guard.condemned() == []


def test_when_all_nodes_fail_the_jobs_are_bad():
    guard = BlackHoleGuard()
    now = NOW
    for turn in range(3000):
        now += 0.1
        guard.saw(f"node-{turn % 10}", "a", ok=False, wall=1.0, now=now)
    assert guard.condemned() == []


def test_a_batch_that_turned_bad_condemns_no_more_than_the_node_that_had_it_first():
    guard = BlackHoleGuard()
    now = fleet(guard, 50)
    # Each node eats its share before the next one gets any: the worst order.
    worst = 0
    for number in range(50):
        for _ in range(40):
            now += 0.01
            guard.saw(f"good-{number}", "a", ok=False, wall=1.0, now=now)
        worst = max(worst, len(guard.condemned()))
    assert worst <= 1
    assert guard.condemned() == []


def test_a_node_alone_is_never_condemned():
    guard = BlackHoleGuard()
    assert until_condemned(guard, "only", "a", NOW) == 0


def test_a_node_that_did_well_for_long_is_found_as_soon_when_it_breaks():
    guard = BlackHoleGuard()
    now = NOW
    for turn in range(5000):
        now += 1
        guard.saw("hole", "a", ok=True, wall=60.0, now=now)
        guard.saw(f"good-{turn % 49}", "a", ok=True, wall=60.0, now=now)
    assert 5 <= until_condemned(guard, "hole", "a", now) <= 8


def test_failures_of_many_kinds_add_up():
    guard = BlackHoleGuard()
    for kind in "abcdef":
        now = fleet(guard, 30, kind)
    for kind in "abcdef":
        for _ in range(2):
            guard.saw("hole", kind, ok=False, wall=1.0, now=now)
    assert guard.condemned() == ["hole"]


def test_a_payload_that_failed_late_is_not_held_against_its_node():
    guard = BlackHoleGuard()
    now = fleet(guard, 49)
    for _ in range(100):
        guard.saw("good-0", "a", ok=False, wall=300.0, now=now)
    assert guard.condemned() == []


def test_an_end_that_says_nothing_of_the_node_does_not_count():
    guard = BlackHoleGuard()
    now = fleet(guard, 49)
    failed = AttemptEnd(ok=False, message="exit code 1", wall=1.0)
    for facts in ({"wall": None}, {"stopped": True}, {"lost": True}, {"call_off": "changed"}):
        for _ in range(100):
            guard.ended("hole", "a", replace(failed, **facts), now)
        assert guard.condemned() == []
    for _ in range(100):
        guard.ended("hole", "a", failed, now)
    assert guard.condemned() == ["hole"]


def test_fast_is_what_is_fast_for_such_jobs():
    guard = BlackHoleGuard()
    for number in range(49):
        guard.saw(f"good-{number}", "a", ok=True, wall=36_000.0, now=NOW)
    for _ in range(10):
        guard.saw("hole", "a", ok=False, wall=300.0, now=NOW)
    assert guard.condemned() == ["hole"]


def test_two_black_holes_are_both_found():
    guard = BlackHoleGuard()
    now = fleet(guard, 48)
    rng = random.Random(1)
    for _ in range(300):
        now += 1
        for hole in ("hole-1", "hole-2"):
            if guard.allowance(hole, now) is None:
                guard.saw(hole, "a", ok=False, wall=1.0, now=now)
        guard.saw(f"good-{rng.randrange(48)}", "a", ok=True, wall=600.0, now=now)
    assert set(guard.condemned()) == {"hole-1", "hole-2"}


def test_a_guard_of_sites_finds_a_site_that_is_a_black_hole():
    guard = BlackHoleGuard()
    now, eaten = NOW, 0
    while guard.allowance("hole", now) is None and eaten < 500:
        now += 1
        eaten += 1
        guard.saw("hole", "a", ok=False, wall=2.0, now=now)
        guard.saw(("kit", "desy", "cern")[eaten % 3], "a", ok=True, wall=600.0, now=now)
    assert guard.condemned() == ["hole"]
    assert eaten < 60


def test_after_its_rest_one_job_is_tried_and_a_relapse_doubles_the_rest():
    guard = BlackHoleGuard(BlackHoleRules(rest=100.0, longest=350.0))
    now = fleet(guard, 49)
    now += until_condemned(guard, "hole", "a", now)
    for rest in (100, 200, 350, 350):
        assert guard.allowance("hole", now + rest - 1) == 0
        assert guard.allowance("hole", now + rest) == 1
        assert "is tried now" in guard.verdict("hole", now + rest)
        now += rest
        guard.saw("hole", "a", ok=False, wall=1.0, now=now)
        assert guard.allowance("hole", now) == 0


def test_a_canary_that_does_well_sets_the_node_free_and_a_relapse_is_remembered():
    guard = BlackHoleGuard(BlackHoleRules(rest=100.0))
    now = fleet(guard, 49)
    now += until_condemned(guard, "hole", "a", now) + 100
    guard.saw("hole", "a", ok=True, wall=600.0, now=now)
    assert guard.allowance("hole", now) is None
    assert guard.verdict("hole", now) == ""
    now += until_condemned(guard, "hole", "a", now)
    assert guard.allowance("hole", now + 199) == 0
    assert guard.allowance("hole", now + 200) == 1


def test_a_canary_of_a_bad_kind_proves_nothing():
    guard = BlackHoleGuard(BlackHoleRules(rest=100.0))
    now = fleet(guard, 49)
    now += until_condemned(guard, "hole", "a", now) + 100
    for number in range(10):
        guard.saw(f"good-{number}", "bad", ok=False, wall=1.0, now=now)
    guard.saw("hole", "bad", ok=False, wall=1.0, now=now)
    assert guard.allowance("hole", now) == 1


def test_what_is_remembered_is_bounded():
    guard = BlackHoleGuard(nodes=100, kinds=50)
    for turn in range(20_000):
        guard.saw(f"node-{turn % 1000}", turn % 333, ok=turn % 3 == 0, wall=1.0, now=NOW + turn)
    assert len(guard._streaks) <= 100
    assert all(len(streak.ends) <= 32 for streak in guard._streaks.values())
    assert len(guard._kinds) <= 50
    assert all(len(kind.votes) <= 64 for kind in guard._kinds.values())


#: Chance may condemn a good node, seldom: so the lives that are tried are always the same ones.
SEEDS = range(60)


def test_nodes_that_are_all_alike_are_not_condemned_however_often_jobs_fail():
    for seed in SEEDS:
        rng = random.Random(seed)
        rate = rng.uniform(0.0, 0.6)
        guard = BlackHoleGuard()
        for turn in range(2000):
            ok = rng.random() >= rate
            node, kind = f"node-{rng.randrange(40)}", rng.randrange(3)
            guard.saw(node, kind, ok=ok, wall=5.0, now=NOW + turn)
        assert guard.condemned() == [], seed


def test_a_node_that_fails_most_is_condemned_and_no_other():
    for seed in SEEDS:
        rng = random.Random(seed)
        rate = rng.uniform(0.0, 0.2)
        guard = BlackHoleGuard()
        for turn in range(4000):
            number = rng.randrange(40)
            ok = rng.random() >= (0.95 if number == 0 else rate)
            guard.saw(f"node-{number}", "a", ok=ok, wall=5.0, now=NOW + turn)
            if guard.condemned():
                break
        assert guard.condemned() == ["node-0"], seed
