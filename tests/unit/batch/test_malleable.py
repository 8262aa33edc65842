"""The shape of a job that may have several: within its bounds, never over a gap, the most at once.

What Slurm shows was recorded from a cluster of four nodes: on n1 something runs that fills it, on
n2 something small; n3 and n4 are planned for a large job that waits behind a reservation.
"""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.agent import admission, staging
from pilotage.agent.app import policy
from pilotage.agent.app.model import Application, AppLimits
from pilotage.batch import job as guest
from pilotage.batch import malleable
from pilotage.batch.malleable import Fit, Gap, QueueBounds, SizeRange
from pilotage.batch.system import slurm
from pilotage.batch.system.model import BatchError, BatchOrder, Output
from pilotage.batch.system.slurm import windows
from pilotage.bus.model import Job, Shape
from pilotage.job import model, moves

NOW = 1_000_000.0
LONGER = 60.0


@st.composite
def asks(draw: st.DrawFn) -> SizeRange:
    nodes = sorted(draw(st.tuples(st.integers(1, 40), st.integers(1, 40))))
    times = sorted(draw(st.tuples(st.integers(30, 9000), st.integers(30, 9000))))
    work = draw(st.integers(0, nodes[1] * times[1]))
    return SizeRange(
        nodes_least=nodes[0], nodes_most=nodes[1], time_least=times[0], time_most=times[1],
        work=work, longer=LONGER,
    )  # fmt: skip


@st.composite
def free(draw: st.DrawFn) -> Gap:
    start = draw(st.just(0) | st.integers(0, 9000))
    length = draw(st.integers(1, 20_000) | st.just(math.inf))
    return Gap(draw(st.integers(1, 20)), NOW + start, NOW + start + length)


GAPS = st.lists(free(), max_size=8)


def takes(fit: Fit) -> float:
    """Say how long the batch job of a shape is, as it is asked for."""
    assert fit.time is not None
    return math.ceil((fit.time + LONGER) / 60) * 60


def room(some: list[Gap], fit: Fit) -> int:
    """Count the nodes that are free for all of the time of a shape."""
    assert fit.start is not None
    end = fit.start + takes(fit)
    return sum(gap.nodes for gap in some if gap.start <= fit.start and gap.end >= end)


# -- the choice ------------------------------------------------------------------------------------


@given(asks(), st.none() | GAPS)
def test_a_shape_is_within_its_bounds(ask: SizeRange, some: list[Gap] | None):
    fit = malleable.choose(ask, some, NOW)
    assert fit.time is not None
    assert ask.nodes_least <= fit.nodes <= ask.nodes_most
    assert ask.time_least <= fit.time <= ask.time_most
    assert fit.nodes * fit.time >= ask.work * (1 - 1e-9)
    assert fit.why.startswith(f"{fit.nodes} node")


@given(asks(), GAPS)
def test_no_shape_is_over_a_gap(ask: SizeRange, some: list[Gap]):
    for fit in malleable.best(ask, some, NOW, count=5):
        assert room(some, fit) >= fit.nodes


@given(asks(), GAPS, st.integers(1, 40), st.integers(1, 150))
def test_nothing_larger_starts_at_once(ask: SizeRange, some: list[Gap], nodes: int, minutes: int):
    """No other shape that anybody thinks of is better."""
    fit = malleable.choose(ask, some, NOW)
    other = Fit(nodes=nodes, time=minutes * 60.0, start=NOW)
    fits = ask.nodes_least <= nodes <= ask.nodes_most and ask.time_least <= minutes * 60
    fits = fits and minutes * 60 <= ask.time_most and nodes * minutes * 60 >= ask.work
    # A little earlier than the very end, as whoever submits takes a moment.
    early = [Gap(gap.nodes, gap.start, gap.end - 30) for gap in some]
    if fits and room(early, other) >= nodes:
        assert fit.start == NOW
        assert fit.nodes * (fit.time or 0) >= nodes * minutes * 60


@given(asks(), GAPS, GAPS)
def test_more_room_is_never_worse(ask: SizeRange, some: list[Gap], more: list[Gap]):
    before, after = malleable.best(ask, some, NOW), malleable.best(ask, some + more, NOW)
    if not before:
        return
    (old,), (new,) = before, after
    assert old.start is not None
    assert new.start is not None

    def done(fit: Fit) -> float:
        assert fit.start is not None
        return fit.start + max(ask.time_least, ask.work / fit.nodes)

    if old.start == NOW:
        assert new.start == NOW
        assert new.nodes * (new.time or 0) >= old.nodes * (old.time or 0)
    else:
        assert new.start == NOW or done(new) <= done(old)


@given(asks(), GAPS)
def test_what_one_has_the_next_does_not_count_on(ask: SizeRange, some: list[Gap]):
    left, fits = some, list[Fit]()
    for _ in range(4):
        if not (found := malleable.best(ask, left, NOW)):
            break
        left = malleable.book(left, found[0], LONGER)
        fits += found
    for moment in {fit.start for fit in fits}:
        assert moment is not None
        there = [gap for gap in some if gap.start <= moment < gap.end]
        used = [
            fit
            for fit in fits
            if fit.start is not None and fit.start <= moment < fit.start + takes(fit)
        ]
        assert sum(fit.nodes for fit in used) <= sum(gap.nodes for gap in there)


def ask(**changes: float) -> SizeRange:
    usual = {"nodes_least": 1, "nodes_most": 8, "time_least": 600.0, "time_most": 3600.0}
    return msgspec.convert(usual | {"longer": LONGER} | changes, SizeRange)


def test_a_gap_before_a_reservation_is_filled():
    fit = malleable.choose(ask(), [Gap(3, NOW, NOW + 1800)], NOW)
    assert (fit.nodes, fit.time, fit.start) == (3, 1680.0, NOW)
    assert fit.why == "3 nodes for 28 m, the most that can start at once"


def test_more_nodes_for_less_time_are_taken_if_they_are_more():
    some = [Gap(2, NOW, NOW + 3000), Gap(6, NOW, NOW + 1500)]
    assert (
        malleable.choose(ask(), some, NOW).nodes,
        malleable.choose(ask(), some[:1], NOW).nodes,
    ) == (
        8,
        2,
    )
    assert malleable.choose(ask(work=8 * 2000), [*some, Gap(8, NOW + 4000)], NOW).nodes == 8


def test_what_has_the_work_done_soonest_is_waited_for():
    # One node is free in a minute and would take an hour; eight are free in ten.
    some = [Gap(1, NOW + 60), Gap(8, NOW + 600)]
    assert malleable.choose(ask(), some, NOW).start == NOW + 60
    later = malleable.choose(ask(work=3600), some, NOW)
    assert (later.nodes, later.start, later.why) == (
        8, NOW + 600, "8 nodes for 1 h, the most that can start in 10 m"
    )  # fmt: skip


def test_without_a_word_of_what_is_free_it_is_the_most_and_the_least_if_nothing_is():
    assert malleable.choose(ask(), None, NOW).nodes == 8
    none = malleable.choose(ask(work=7200), [Gap(1, NOW, NOW + 300)], NOW)
    assert (none.nodes, none.time) == (2, 3600.0)
    assert "the least" in none.why


def test_what_a_queue_never_gives_is_not_asked_for():
    narrow = malleable.bounded(ask(), QueueBounds(nodes=4, time=1800))
    assert (narrow.nodes_most, narrow.time_most) == (4, 1740.0)
    # The batch system says it better than we could.
    assert malleable.bounded(ask(nodes_least=6), QueueBounds(nodes=4)) == ask(nodes_least=6)


# -- what Slurm shows ------------------------------------------------------------------------------

US, RS, END = "\x1f", "\x1e\n", "\nend of listing\n"
PARTITIONS = {"long": ("1-00:00:00", "1:00:00"), "debug*": ("10:00", "5:00")}
NODES = {"n1": ("alloc", "4/0/0/4", 2000), "n2": ("mix", "1/3/0/4", 500),
         "n3": ("plnd", "0/4/0/4", 0), "n4": ("plnd", "0/4/0/4", 0)}  # fmt: skip
SQUEUE = (
    "RUNNING\x1f1794841625\x1f1794841925\x1fn1\x1f(null)\x1e\n"
    "RUNNING\x1f1794841625\x1f1794842045\x1fn2\x1f(null)\x1e\n"
    "PENDING\x1f1794844324\x1f1794846124\x1f\x1fn[1-4]\x1e\n"
    "PENDING\x1fN/A\x1fN/A\x1f\x1f(null)\x1e\n"
)
RESERVED = "maint      INACTIVE           1794842524           1794844324     00:30:00  n[1-4]\n"
CLOCK = 1794841630
KEY = "p0123456789abcd"


def sinfo(**states: str) -> str:
    rows = []
    for name, (state, cpus, used) in NODES.items():
        for partition, (longest, usual) in PARTITIONS.items():
            row = (name, partition, states.get(name, state), cpus, "4000", str(used), "(null)",
                   longest, usual, "1-infinite", "up")  # fmt: skip
            rows.append(US.join(field.ljust(24) for field in row) + RS)
    return "".join(rows)


def seen(reserved: str = RESERVED, **states: str) -> windows.ClusterState:
    texts = (sinfo(**states), SQUEUE, reserved, f"{CLOCK}\n")
    return windows.seen([Output(0, text + END) for text in texts])


def order(**changes: object) -> BatchOrder:
    return BatchOrder(key=KEY, script="#!/bin/sh\n", folder="/f", **changes)  # type: ignore[arg-type]


def in_seconds(some: list[Gap]) -> list[tuple[int, float, float]]:
    return [(gap.nodes, gap.start - CLOCK, gap.end - CLOCK) for gap in some]


def test_gaps_end_where_something_is_planned_or_reserved():
    assert in_seconds(windows.gaps(seen(), order())) == [
        (3, 0, 894), (1, 295, 894), (4, 4494, math.inf)
    ]  # fmt: skip
    # With a whole node for each task, what n2 does must be over first.
    assert in_seconds(windows.gaps(seen(), order(cpus=4))) == [
        (2, 0, 894), (1, 295, 894), (1, 415, 894), (4, 4494, math.inf)
    ]  # fmt: skip
    assert windows.gaps(seen(), order(cpus=5)) == []
    assert windows.gaps(seen(), order(gpus=1)) == []


def test_who_has_the_reservation_runs_within_it_alone():
    assert in_seconds(windows.gaps(seen(), order(reservation="maint"))) == [(4, 894, 2694)]
    quiet = in_seconds(windows.gaps(seen("No reservations in the system\n"), order(queue="long")))
    assert quiet[0] == (3, 0, 2694)


def test_nodes_that_take_no_jobs_are_not_free():
    some = windows.gaps(seen(n3="drain", n4="idle*", n2="down"), order())
    assert in_seconds(some) == [(1, 295, 894), (1, 4494, math.inf)]


def test_what_a_partition_gives_is_read():
    assert windows.bounds(seen(), order()) == QueueBounds(time=600, usual=300)
    assert windows.bounds(seen(), order(queue="long")) == QueueBounds(time=86400, usual=3600)
    assert windows.bounds(seen(), order(queue="nope")) == QueueBounds()
    assert windows.gaps(seen(), order(queue="nope")) == []


def test_lists_of_nodes_are_read():
    assert list(windows.hosts("n[1-3,7],m01,r[1-2]c[08-10]-ib")) == [
        "n1", "n2", "n3", "n7", "m01",
        "r1c08-ib", "r1c09-ib", "r1c10-ib", "r2c08-ib", "r2c09-ib", "r2c10-ib",
    ]  # fmt: skip


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("text", ["", "half a li", f"a{US}b{RS}{END}", f"x y{END}"])
def test_what_is_cut_off_or_strange_is_no_listing(at: int, text: str):
    texts = [sinfo() + END, SQUEUE + END, RESERVED + END, f"{CLOCK}{END}"]
    texts[at] = text
    with pytest.raises(BatchError):
        windows.seen([Output(0, one) for one in texts])


def test_a_trial_submits_nothing_and_says_when():
    call = windows.trial(order(nodes=3))
    assert "--test-only" in call.argv
    assert "--parsable" not in call.argv
    words = "sbatch: Job 7 to start at 1794841630 using 3 processors on nodes n[2-4] in partition p"
    assert windows.tried(Output(0, "", words)) == 1794841630
    with pytest.raises(BatchError, match="not available"):
        windows.tried(Output(1, "", "allocation failure: node configuration is not available"))


def test_slurm_shows_what_is_free():
    assert slurm.TOOLS.windows is not None


# -- its way through a site ------------------------------------------------------------------------

APP = Application(executable="/bin/true", sha256="0" * 64, limits=AppLimits(nodes=8, time="1h"))


def job(nodes: int = 8, time: int = 3600, **least: int) -> Job:
    return Job(site="s", application="a", nodes=nodes, wall_time=time, shape=Shape(**least))


@pytest.mark.parametrize(
    "message, reasons",
    [
        (job(nodes_least=2, time_least=600, work=3600), 0),
        (job(nodes=16, nodes_least=2), 1),
        (job(nodes=2, nodes_least=4), 1),
        (job(time=600, time_least=1200), 1),
        (job(nodes=2, time=600, work=1201), 1),
    ],
)
def test_limits_hold_for_every_shape(message: Job, reasons: int):
    assert len(policy.judge(APP, message, "alice").reasons) == reasons


def test_the_chosen_shape_is_the_only_one_from_then_on():
    spec = admission.spec_of(job(nodes_least=2, time_least=600), APP, "s")
    assert spec.allocation.shape == model.Shape(nodes_least=2, time_least=600.0)
    claim = moves.Claim(1, 1, 1, "", "", 0, "")
    one = guest.BatchJob(claim, spec, model.Binding(), "/")
    guest.shape(one, Fit(nodes=3, time=900.0))
    assert (one.spec.allocation.nodes, one.spec.resources.time) == (3, 900.0)
    assert one.spec.allocation.shape == model.Shape()
    sized = staging.sized(job(nodes_least=2, time_least=600), one.fit)
    assert (sized.nodes, sized.wall_time, sized.shape) == (3, 900, Shape())
    # It is part of the intent, from which a later process knows it.
    written = msgspec.json.decode(msgspec.json.encode(order(fit=one.fit)), type=BatchOrder)
    assert written.fit == one.fit
