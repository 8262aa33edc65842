"""The queue: how fast jobs begin, durably, and whether a long queue makes it slower."""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench import limits, machine
from bench.figure import Figure, Goal, figure, percentile
from bench.queue.reaction import reaction
from bench.queue.steady import Flow, flow


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything."""

    repeats: int = 3
    #: Pilots that drain the queue, for so many seconds, and how many jobs lie there for each core.
    pilots: int = 1000
    seconds: float = 5.0
    queued: int = 200_000
    #: Lengths of the queue that claims are compared at.
    short: int = 1000
    long: int = 1_000_000
    reactions: int = 500


QUICK = Plan(repeats=1, pilots=200, seconds=1.5, queued=40_000, long=50_000, reactions=100)

_CALLS = {1: 8_000, 16: 50_000}
_BATCH = 1000
_Flows = dict[str, list[Flow]]


def figures(plan: Plan) -> Iterator[Figure]:
    """Measure everything, the limits in between."""
    found: _Flows = defaultdict(list)
    bulk, single, waits = [], [], []
    with tempfile.TemporaryDirectory(prefix="pilotage-bench-", ignore_cleanup_errors=True) as home:
        scratch = Path(home)
        for repeat in range(plan.repeats):
            bulk.append(limits.rows(scratch, batch=_BATCH, batches=20))
            single.append(limits.syncs(scratch, times=500))
            for name, one in _flows(plan, scratch):
                found[name].append(one)
                _tell(f"{repeat + 1}. {name}: {one}")
            waits.append(reaction(scratch, pilots=plan.pilots // 10, times=plan.reactions))
            _tell(f"{repeat + 1}. reaction: {1e3 * percentile(waits[-1], 0.5):.2f} ms")
    yield from _rates(found, bulk, single)
    yield from _depth(plan, found)
    yield from _reactions(waits)


def _flows(plan: Plan, scratch: Path) -> Iterator[tuple[str, Flow]]:
    for cores in _CALLS:
        queued = plan.queued * (5 if cores > 1 else 1)
        yield (
            f"{cores} a call",
            flow(scratch, pilots=plan.pilots, cores=cores, queued=queued, seconds=plan.seconds),
        )
    for name, queued in (("short", plan.short), ("long", plan.long)):
        yield (
            name,
            flow(scratch, pilots=100, cores=4, queued=queued, seconds=plan.seconds, fed=True),
        )


def _rates(found: _Flows, bulk: list[float], single: list[float]) -> Iterator[Figure]:
    for cores, goal in _CALLS.items():
        flows = found[f"{cores} a call"]
        word = "job" if cores == 1 else "jobs"
        yield figure(
            f"durable job starts, {cores} {word} a call",
            "starts/s",
            [one.rate for one in flows],
            better="more",
            limit=bulk,
            goal=Goal(goal),
            note=f"each call ends as many; {percentile(single, 0.5):.0f} fsync/s of one line; "
            f"the limit is SQLite, {_BATCH} rows a transaction",
        )
        yield figure(
            f"processor time of the hub a start, {cores} {word} a call",
            "µs",
            [1e6 * one.cpu for one in flows],
        )
    yield figure(
        "starts that a killed hub had forgotten",
        "starts",
        [float(sum(one.forgotten for several in found.values() for one in several))],
        goal=Goal(0),
    )


def _depth(plan: Plan, found: _Flows) -> Iterator[Figure]:
    short, long = ([one.rate for one in found[name]] for name in ("short", "long"))
    for length, rates in ((plan.short, short), (plan.long, long)):
        yield figure(
            f"starts with {length} queued, as many submitted meanwhile",
            "starts/s",
            rates,
            better="more",
        )
    yield figure(
        f"starts with {plan.short} queued over those with {plan.long}",
        "",
        [one / other for one, other in zip(short, long, strict=True)],
        goal=Goal(1.3),
    )


def _reactions(waits: list[list[float]]) -> Iterator[Figure]:
    for share, goal in ((0.5, 5.0), (0.99, 100.0)):
        yield figure(
            f"submit to start on a waiting pilot, p{100 * share:g}",
            "ms",
            [1e3 * percentile(one, share) for one in waits],
            goal=Goal(goal),
        )


def _tell(text: str) -> None:
    print(f"{text}  (load {machine.load()})", file=sys.stderr, flush=True)
