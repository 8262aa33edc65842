"""What pools do: controllers and the AIMD policy say what they want, guards what may be."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from pilotage.batch.pilot_request import PilotRequest
from pilotage.pool import decide
from pilotage.pool.files import Aimd, Even, Outside, Pool, Relative, SupplySteps
from pilotage.pool.model import Reading
from pilotage.pool.outside import Told
from pilotage.pool.policy.model import Care, Hint, Sight
from pilotage.pool.state import BY_PERSON, PAUSED, PoolObservation, PoolOverrides, PoolRow, PoolStep

NOW = 1_000_000.0
QUICK = Aimd(patience="1s", haste="1s", rest="10s", ski=0.0)


def pool(**facts: object) -> Pool:
    given = {"site": "a", "maximum": 64, "pilot": PilotRequest(cpus=4), "interval": "10s"} | facts
    return msgspec.convert(given, Pool, from_attributes=True)


def seen(
    *, queued: int = 0, booting: int = 0, ready: int = 0, draining: int = 0,
    idle: tuple[float, ...] = (), demand: float = 0.0, used: float | None = None,
    waiting: float = 0.0, failed: int = 0, joined: int = 0, back: tuple[int, ...] = (),
    leaving: tuple[float, ...] = (), **more: object,
) -> PoolObservation:  # fmt: skip
    free = [0] * 5
    free[4] = len(idle)
    free[0] = ready - len(idle)
    sight = Sight(
        "p", "a", 4, 1e12, queued, booting, ready, draining, tuple(free), idle=idle, failed=failed,
        joined=joined, quota=64.0, callable=back, leaving=leaving,
    )  # fmt: skip
    reading = Reading(
        4.0 * ready, demand, used, used, 4.0 * queued, 4.0 * booting, 4.0 * draining
    )  # fmt: skip
    hints = (Hint("1 core @p", 1, 1.0, waiting),) if waiting else ()
    return PoolObservation(sight, reading, waiting, group="p", hints=hints, **more)  # type: ignore[arg-type]


def decided(one: Pool, look: PoolObservation, row: PoolRow | None = None) -> PoolStep:
    rows = {"p": row} if row else {}
    steps, _ = decide.decide({"p": one}, rows, {"p": look}, {}, NOW)
    return steps["p"]


def test_our_law_orders_for_what_waits():
    step = decided(pool(control=QUICK, pending=3), seen(waiting=40.0))
    assert step.order == 3
    assert step.demand == 12
    assert "40" in step.words or "wait" in step.words


def test_nothing_waits_and_nothing_is_there_so_nothing_happens():
    step = decided(pool(control=QUICK), seen())
    assert (step.order, step.cancel, step.drain, step.release) == (0, 0, 0, 0)
    assert step.words.startswith("nothing to do")


def test_our_law_lets_the_idle_go():
    step = decided(pool(control=QUICK), seen(ready=3, idle=(60.0, 50.0, 2.0), used=0.0))
    assert step.release + step.drain >= 2
    assert step.demand == 4 * (3 - step.release - step.drain)


def test_what_is_on_order_is_called_off_before_anything_drains():
    step = decided(
        pool(control=Even(rate=1.0)), seen(ready=2, queued=2, used=0.1, demand=16.0),
        PoolRow("p", 16.0, looked=NOW - 10),
    )  # fmt: skip
    assert (step.cancel, step.drain) == (2, 0)
    assert step.demand == 6.0


def test_a_controller_that_wants_less_drains():
    step = decided(
        pool(control=Relative(low_scale=0.5)),
        seen(ready=4, used=0.1),
        PoolRow("p", looked=NOW - 10),
    )
    assert (step.order, step.cancel, step.drain) == (0, 0, 2)


def test_demand_does_not_run_away_from_what_can_be_had():
    step = decided(
        pool(control=Even(rate=100.0), pending=2),
        seen(queued=2, demand=8.0),
        PoolRow("p", looked=NOW),
    )
    assert step.demand <= 4 * (2 + 2)
    assert step.order == 0


def test_time_in_which_nobody_looked_counts_for_two_intervals_at_most():
    step = decided(
        pool(control=Even(rate=0.1), pending=60), seen(demand=0.0), PoolRow("p", looked=NOW - 1e5)
    )
    assert step.demand == pytest.approx(2.0)


def test_the_minimum_is_kept_whatever_is_used():
    step = decided(pool(control=QUICK, minimum=8), seen())
    assert step.order == 2
    step = decided(pool(control=QUICK, minimum=8), seen(ready=3, idle=(99.0, 99.0, 99.0), used=0.0))
    assert step.release + step.drain == 1


def test_a_maximum_that_was_lowered_lets_pilots_go():
    lower = PoolOverrides(maximum=4).apply(pool(control=QUICK))
    step = decided(lower, seen(ready=2, queued=1, used=1.0))
    assert (step.cancel, step.drain) == (1, 1)


def test_the_maximum_counts_those_that_drain():
    step = decided(
        pool(control=QUICK, maximum=8), seen(ready=1, draining=1, used=1.0, waiting=40.0)
    )
    assert step.order == 0


def test_what_costs_too_much_is_asked_for_first():
    look = seen(waiting=60.0)
    step = decided(pool(control=QUICK, ask_above=8), look)
    assert step.order == 2
    assert "pilotage pool set p --allow" in step.reason
    allowed = PoolOverrides(ask_above=0).apply(pool(control=QUICK, ask_above=8))
    step = decided(allowed, look)
    assert step.order > 2
    assert not step.reason


def test_a_site_that_is_drained_or_full_gets_no_orders():
    assert decided(pool(control=QUICK), seen(waiting=40.0, closed="drained")).order == 0
    assert decided(pool(control=QUICK), seen(waiting=40.0, room=1)).order == 1


def test_pilots_that_die_are_ordered_no_more_for_a_while():
    step = decided(pool(control=QUICK), seen(waiting=40.0, failed=3))
    assert step.order == 0
    assert step.care.until > NOW
    assert "the last 3 pilots died" in step.reason
    assert not step.asked
    later = decided(
        pool(control=QUICK), seen(waiting=40.0),
        PoolRow("p", care=Care(deaths=3, until=NOW - 1), looked=NOW - 10),
    )  # fmt: skip
    assert later.order == 1


def test_a_pool_whose_pilots_only_die_pauses_and_says_why():
    step = decided(
        pool(control=QUICK), seen(queued=2, waiting=40.0, failed=10, death="invalid account")
    )
    assert step.asked == PAUSED
    assert "invalid account" in step.reason
    assert step.cancel == 2
    assert step.order == 0


def test_a_paused_pool_does_nothing():
    row = PoolRow("p", 4.0, asked=PAUSED, reason=BY_PERSON)
    step = decided(pool(control=Even()), seen(waiting=40.0, ready=1, used=1.0), row)
    assert (step.order, step.cancel, step.drain, step.release) == (0, 0, 0, 0)
    assert (step.asked, step.reason, step.demand) == (PAUSED, BY_PERSON, 4.0)


def test_pools_that_are_alike_share_what_waits():
    looks = {
        name: msgspec.structs.replace(
            seen(waiting=8.0),
            sight=msgspec.structs.replace(seen().sight, name=name),
        )
        for name in ("p", "q")
    }
    pools = {name: pool(control=QUICK) for name in looks}
    steps, needs = decide.decide(pools, {}, looks, {}, NOW)
    assert 0 < sum(step.order for step in steps.values()) <= 5
    assert list(needs) == ["1 core @p"]


# -- those that drain, those that end, those that share a site -----------------------------------


@pytest.mark.parametrize("control", [QUICK, Even(rate=10.0)])
def test_who_drains_is_called_back_before_anybody_is_ordered(control):
    look = seen(
        ready=1, draining=3, back=(1, 2, 2), waiting=5.0, used=1.0, demand=4.0,
    )  # fmt: skip
    step = decided(pool(control=control, maximum=16), look, PoolRow("p", 4.0, looked=NOW - 10))
    assert step.recall == 3
    assert step.order == 0
    assert step.demand == 16


def test_nobody_is_called_back_to_a_site_that_is_drained_or_above_the_maximum():
    look = seen(ready=1, draining=2, back=(1, 1), waiting=9.0, used=1.0)
    closed = msgspec.structs.replace(look, closed="site a is drained")
    assert decided(pool(control=QUICK), closed).recall == 0
    assert decided(pool(control=QUICK, maximum=8), look).recall == 1


@pytest.mark.parametrize("control", [QUICK, Even(high_allocation=1.0)])
def test_those_that_end_soon_are_replaced_in_time(control):
    look = seen(ready=2, used=1.0, demand=8.0, leaving=(60.0, 7000.0))
    row = PoolRow("p", 8.0, looked=NOW - 10)
    assert decided(pool(control=control, minimum=8), look, row).order == 1
    assert decided(pool(control=control, minimum=8, maximum=8), look, row).order == 0
    late = seen(ready=2, used=1.0, demand=8.0, leaving=(6000.0, 7000.0))
    assert decided(pool(control=control, minimum=8), late, row).order == 0


@pytest.mark.parametrize("control", [QUICK, Even(high_allocation=1.0)])
@pytest.mark.parametrize("there", [{"queued": 1}, {"booting": 1}, {"ready": 3, "idle": (90.0,)}])
def test_who_comes_in_time_for_one_that_ends_soon_is_not_sent_away(control, there):
    look = seen(**{"ready": 2, "used": 1.0, "demand": 8.0, "leaving": (60.0,)} | there)
    row = PoolRow("p", 8.0, looked=NOW - 10)
    step = decided(pool(control=control, minimum=8), look, row)
    assert (step.order, step.cancel, step.drain, step.release) == (0, 0, 0, 0)


def test_a_demand_from_outside_is_kept_while_pilots_are_replaced():
    told = Told(8.0, "why", "me", NOW - 5)
    row = PoolRow("p", 8.0, looked=NOW - 10, told=told)
    one = pool(control=Outside())
    assert decided(one, seen(ready=2, used=1.0, leaving=(60.0,)), row).order == 1
    calm = decided(one, seen(ready=2, queued=1, used=1.0, leaving=(60.0,)), row)
    assert (calm.order, calm.cancel, calm.drain) == (0, 0, 0)
    none = replace(row, told=replace(told, demand=0.0))
    assert decided(one, seen(ready=1, used=1.0, leaving=(60.0,)), none).drain == 1


def test_jobs_that_a_pilot_seemed_to_have_room_for_are_not_forgotten():
    """The pilot may have been about to take one of many, or may have ended without any."""
    one, row = pool(control=QUICK), PoolRow("p", looked=NOW - 10)
    look = seen(ready=1, idle=(1.0,), used=0.0, waiting=40.0)
    roomy = replace(look, hints=(replace(look.hints[0], fits=True),))
    _, needs = decide.decide({"p": one}, {"p": row}, {"p": roomy}, {}, NOW)
    assert needs["1 core @p"].phantom == 40
    full = seen(waiting=40.0)
    steps, _ = decide.decide({"p": one}, {"p": row}, {"p": full}, needs, NOW)
    assert steps["p"].order > 0


def test_without_a_word_of_the_queue_a_full_pool_grows():
    blind = pool(control=Aimd(hint=False), maximum=1000)
    row, ordered = PoolRow("p", 64.0, looked=NOW - 10), 0
    for _ in range(360):
        look = seen(ready=16, used=1.0, demand=64.0)
        step = decided(blind, look, row)
        ordered += step.order
        row = replace(row, state=msgspec.json.decode(msgspec.json.encode(step.state)))
    assert ordered


def test_a_pool_that_cannot_be_decided_for_is_left_and_told_and_the_others_go_on():
    pools, looks = two()
    bad = pool(control=Aimd(hedge=0.0))
    wrong = pool(control=SupplySteps(step=()))
    pools |= {"bad": bad, "wrong": wrong}
    for name in ("bad", "wrong"):
        look = seen(ready=1, queued=1, used=0.9, waiting=8.0)
        looks[name] = replace(look, sight=replace(look.sight, name=name), group=name)
    rows = {name: PoolRow(name, 4.0, looked=NOW - 10) for name in ("bad", "wrong")}
    steps, _ = decide.decide(pools, rows, looks, {}, NOW)
    assert steps["small"].order + steps["large"].order > 0
    for name in ("bad", "wrong"):
        assert (steps[name].order, steps[name].cancel, steps[name].demand) == (0, 0, 4.0)
        assert "its controller failed" in steps[name].reason


def test_the_end_of_a_short_life_is_not_near_when_it_begins():
    look = seen(ready=2, used=1.0, leaving=(500.0, 590.0))
    quick = pool(control=QUICK, minimum=8, pilot=PilotRequest(cpus=4, time="10m"))
    assert decided(quick, look).order == 0


def two(**more: object) -> tuple[dict[str, Pool], dict[str, PoolObservation]]:
    """Small and large pilots at one site."""
    looks = {}
    for name, cores, memory in (("small", 4, 1e9), ("large", 8, 1e12)):
        sight = Sight(name, "a", cores, memory, free=(0,) * (cores + 1), quota=64.0)
        hints = (Hint(f"1 core @{name}", 1, memory / cores, 40.0),)
        looks[name] = PoolObservation(
            sight, Reading(0.0, 0.0), 40.0, group=name, hints=hints,
            **more,  # type: ignore[arg-type]
        )  # fmt: skip
    pools = {name: pool(control=QUICK, pilot=PilotRequest(cpus=look.sight.cores))
             for name, look in looks.items()}  # fmt: skip
    return pools, looks


def test_shapes_at_one_site_share_the_pilots_that_it_takes():
    pools, looks = two(room=5)
    steps, _ = decide.decide(pools, {}, looks, {}, NOW)
    assert sum(step.order for step in steps.values()) == 5
    assert any("has as many as it may" in step.words for step in steps.values())


def test_shapes_at_one_site_share_its_quota_of_cores():
    pools, looks = two(quota=20.0)
    steps, _ = decide.decide(pools, {}, looks, {}, NOW)
    assert 4 * steps["small"].order + 8 * steps["large"].order <= 20
    assert steps["small"].order == 5
    assert "the quota of a leaves 0 cores" in steps["large"].words


def test_what_one_pool_cannot_have_now_is_ordered_of_another():
    both = {
        name: pool(site=name, control=QUICK, maximum=8, pending=2, pilot=PilotRequest(cpus=1))
        for name in "ab"
    }
    # Nothing has started there for hours, so what is on order is not counted on.
    stuck = Sight("a", "a", 1, 1e12, queued=2, oldest=36_000.0)
    free = Sight("b", "b", 1, 1e12)
    hints = (Hint("1 core @a", 1, 1.0, 1.0),)
    look = {
        one.name: PoolObservation(one, Reading(0.0, 0.0), 1.0, group="a", hints=hints)
        for one in (stuck, free)
    }
    steps, _ = decide.decide(both, {}, look, {}, NOW)
    assert (steps["a"].order, steps["b"].order) == (0, 2)
