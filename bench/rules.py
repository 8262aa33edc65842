"""Events to jobs: Pilotage beside meow-base, and beside what the machine allows."""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench import burst, limits, machine, matching, ours, peers, reaction
from bench.figure import Figure, Goal, figure, percentile
from bench.load import Load, Outcome


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything."""

    repeats: int = 3
    #: Numbers of jobs that are scheduled, and that are run.
    scheduled: tuple[int, ...] = (100, 500, 1000)
    run: tuple[int, ...] = (100, 500, 1000)
    #: The peer runs no more than so many jobs more than once.
    often: int = 500
    python: int = 100
    chain: tuple[int, ...] = (100, 500, 1000)
    #: The peer takes two seconds a hop.
    peer_chain: int = 8
    burst: int = 50_000
    peer_burst: int = 20_000
    peer_burst_s: float = 240.0
    events: int = 100_000
    reaction: int = 200
    peer_reaction: int = 5


QUICK = Plan(
    repeats=1, scheduled=(500,), run=(100,), python=20, chain=(100,), peer_chain=3, burst=20_000,
    peer_burst=0, events=50_000, reaction=50, peer_reaction=2,
)  # fmt: skip

#: The machine's limits, measured as often as everything else.
_Limits = dict[str, list[float]]
_RULE_COUNTS = (1, 10, 100, 1_000, 10_000)
_BATCH = 5_000


def figures(plan: Plan) -> Iterator[Figure]:
    """Measure everything; each system and each limit in turn, so that they share the noise."""
    peers.python()
    with tempfile.TemporaryDirectory(prefix="pilotage-bench-") as folder:
        scratch = Path(folder)
        found = _limits(scratch, plan)
        yield from _side_by_side(scratch, plan, found)
        yield from _reaction(scratch, plan)
        yield from _bursts(scratch, plan, found)
    yield from _matching(plan)


def _tell(text: str) -> None:
    print(f"{text}  (load {machine.load()})", file=sys.stderr, flush=True)


def _limits(scratch: Path, plan: Plan) -> _Limits:
    found: _Limits = defaultdict(list)
    for _ in range(plan.repeats):
        for recipe in ("bash", "chain"):
            one = limits.spawning(recipe, scratch, cores=machine.cores(), times=200)
            found[f"{recipe} rate"].append(one.rate)
            found[f"{recipe} alone"].append(one.alone)
            found[f"{recipe} cpu"].append(one.cpu)
        for batch in {*plan.scheduled, _BATCH}:
            found[f"rows {batch}"].append(limits.rows(scratch, batch=batch, batches=10))
    _tell(f"limits: {dict(found)}")
    return found


# -- side by side ------------------------------------------------------------------------------


def _loads(plan: Plan) -> dict[str, Load]:
    loads: dict[str, Load] = {}
    for run, sizes in ((False, plan.scheduled), (True, plan.run)):
        word = "done" if run else "scheduled"
        for size in sizes:
            loads[f"1 rule, {size} files: last job {word}"] = Load(files=size, run=run)
            loads[f"{size} rules, 1 file: last job {word}"] = Load(rules=size, run=run)
    python = Load(files=plan.python, recipe="python")
    return loads | {f"1 rule, {plan.python} files, Python: last job done": python}


def _side_by_side(scratch: Path, plan: Plan, found: _Limits) -> Iterator[Figure]:
    loads = _loads(plan)
    mine: dict[str, list[Outcome]] = defaultdict(list)
    theirs: dict[str, list[Outcome]] = defaultdict(list)
    chains: dict[int, list[Outcome]] = defaultdict(list)
    for repeat in range(plan.repeats):
        for name, load in loads.items():
            mine[name].append(ours.run(load, scratch))
            if not repeat or not load.run or load.jobs <= plan.often:
                theirs[name].append(peers.run(load, scratch))
            _tell(f"{repeat + 1}. {name}: {mine[name][-1]} against {theirs[name][-1]}")
        for hops in plan.chain:
            chains[hops].append(ours.run(Load(recipe="chain", hops=hops), scratch))
            _tell(f"{repeat + 1}. chain of {hops}: {chains[hops][-1]}")
        one = peers.run(Load(recipe="chain", hops=plan.peer_chain), scratch)
        theirs["chain"].append(one)
        _tell(f"{repeat + 1}. chain of {plan.peer_chain}: {one} of the peer")
    for name, load in loads.items():
        yield _seconds(name, load, mine[name], theirs[name], found)
    yield from _cpu(loads, mine, theirs, found)
    yield from _chain(plan, chains, theirs["chain"], found)
    everything = [one for several in (*mine.values(), *chains.values()) for one in several]
    yield from _astray(everything, [one for several in theirs.values() for one in several])


def _seconds(
    name: str, load: Load, mine: list[Outcome], theirs: list[Outcome], found: _Limits
) -> Figure:
    if load.recipe == "python":
        limit = []
    elif load.run:
        limit = [load.jobs / rate for rate in found["bash rate"]]
    else:
        limit = [load.jobs / rate for rate in found[f"rows {load.jobs}"]]
    goal = (Goal(20, peers.NAME),) if load.jobs == 500 and not load.run else ()
    return figure(
        name,
        "s",
        [one.seconds for one in mine],
        peers={peers.NAME: [one.seconds for one in theirs]},
        limit=limit,
        goal=goal,
    )


def _cpu(
    loads: dict[str, Load],
    mine: dict[str, list[Outcome]],
    theirs: dict[str, list[Outcome]],
    found: _Limits,
) -> Iterator[Figure]:
    for run, what in ((False, "to schedule"), (True, "to schedule and run")):
        names = [name for name, load in loads.items() if load.run is run and load.files > 1]
        bash = [name for name in names if loads[name].recipe == "bash"]
        largest = max(bash, key=lambda name: (len(theirs[name]), loads[name].jobs))
        yield figure(
            f"processor time a job {what}, {loads[largest].jobs} files",
            "ms",
            [1e3 * one.cpu for one in mine[largest]],
            peers={peers.NAME: [1e3 * one.cpu for one in theirs[largest]]},
            limit=[1e3 * cpu for cpu in found["bash cpu"]] if run else (),
            goal=Goal(100, peers.NAME),
            note="without payloads; the limit is the parent's share of posix_spawn and wait"
            if run
            else "",
        )


def _chain(
    plan: Plan, chains: dict[int, list[Outcome]], theirs: list[Outcome], found: _Limits
) -> Iterator[Figure]:
    for hops, mine in chains.items():
        yield figure(
            f"chain of {hops} jobs, a hop",
            "ms",
            [1e3 * one.seconds / hops for one in mine],
            peers={peers.NAME: [1e3 * one.seconds / plan.peer_chain for one in theirs]},
            limit=[1e3 * alone for alone in found["chain alone"]],
            goal=Goal(50),
            note=f"the peer's chain has {plan.peer_chain} jobs; the limit is one run of the script",
        )


def _astray(mine: list[Outcome], theirs: list[Outcome]) -> Iterator[Figure]:
    for name in ("lost", "doubled"):
        yield figure(
            f"jobs {name} in all of the above",
            "jobs",
            [sum(getattr(one, name) for one in mine)],
            peers={peers.NAME: [sum(getattr(one, name) for one in theirs)]},
            goal=Goal(0),
        )


# -- reaction ----------------------------------------------------------------------------------


def _reaction(scratch: Path, plan: Plan) -> Iterator[Figure]:
    mine, theirs, floor = [], [], []
    for repeat in range(plan.repeats):
        mine.append([1e3 * s for s in reaction.mine(scratch, files=plan.reaction)])
        theirs.append([1e3 * s for s in reaction.theirs(scratch, files=plan.peer_reaction)])
        floor.append([1e3 * s for s in limits.stamping(scratch, times=100)])
        _tell(f"{repeat + 1}. reaction: {percentile(mine[-1], 0.5):.2f} ms")
    for share, goal in ((0.5, (Goal(10),)), (0.99, ())):
        yield figure(
            f"file closed to job started, p{100 * share:g}",
            "ms",
            [percentile(one, share) for one in mine],
            peers={peers.NAME: [percentile(one, share) for one in theirs]},
            limit=[percentile(one, share) for one in floor],
            goal=goal,
            note="by the payload's own first time stamp; the limit is posix_spawn to that stamp",
        )


# -- bursts ------------------------------------------------------------------------------------


def _bursts(scratch: Path, plan: Plan, found: _Limits) -> Iterator[Figure]:
    bursts, events = [], []
    for repeat in range(plan.repeats):
        bursts.append(burst.many(scratch, files=plan.burst, folders=1, kinds=1, cap=300.0))
        events.append(burst.many(scratch, files=plan.events, folders=100, kinds=10, cap=300.0))
        _tell(f"{repeat + 1}. bursts: {bursts[-1]}, {events[-1]}")
    theirs = []
    if plan.peer_burst:
        theirs.append(burst.peer(files=plan.peer_burst, cap=plan.peer_burst_s))
        _tell(f"burst of {plan.peer_burst}: {theirs[-1]} of the peer")
    yield from _burst(plan, bursts, theirs)
    writing = f"written at {plan.events / events[-1].writing:.0f} files/s"
    yield figure(
        f"{plan.events} files, 1000 rules: file written to durable job",
        "events/s",
        [plan.events / one.seconds for one in events],
        better="more",
        limit=found[f"rows {_BATCH}"],
        goal=Goal(30_000),
        note=f"{writing}; {_overflows(events)}; the limit is SQLite, {_BATCH} rows a transaction",
    )
    yield figure(
        f"{plan.events} files, 1000 rules: processor time an event",
        "µs",
        [1e6 * one.cpu for one in events],
    )
    yield figure(
        f"{plan.events} files, 1000 rules: jobs lost or doubled",
        "jobs",
        [one.lost + one.doubled for one in events],
        goal=Goal(0),
    )


def _burst(plan: Plan, mine: list[burst.Burst], theirs: list[burst.Burst]) -> Iterator[Figure]:
    yield figure(
        f"burst of {plan.burst} files: last job durable",
        "s",
        [one.seconds for one in mine],
        limit=[one.writing for one in mine],
        goal=Goal(5),
        note=f"{_overflows(mine)}; the limit is the writing of the files",
    )
    yield figure(
        f"burst of {plan.burst} files: files lost",
        "%",
        [100 * (one.lost + one.doubled) / plan.burst for one in mine],
        peers={peers.NAME: [100 * one.lost / plan.peer_burst for one in theirs]},
        goal=Goal(0),
        note=f"the peer's burst has {plan.peer_burst} files" if theirs else "",
    )


def _overflows(several: list[burst.Burst]) -> str:
    times = sum(one.overflow for one in several)
    queue = machine.inotify_queue()
    return f"kernel queue of {queue}, overflowed in {times} of {len(several)} repeats"


# -- matching ----------------------------------------------------------------------------------


def _matching(plan: Plan) -> Iterator[Figure]:
    rates: dict[int, list[float]] = defaultdict(list)
    bare = []
    for _ in range(max(3, plan.repeats)):
        bare.append(matching.bare())
        for count in _RULE_COUNTS:
            rates[count].append(matching.rate(count))
    _tell("matching")
    for count in _RULE_COUNTS:
        yield figure(
            f"matching among {count} rules",
            "paths/s",
            rates[count],
            better="more",
            limit=bare,
            note="the limit is one compiled regular expression" if count == 1 else "",
        )
    yield figure(
        "matching among 10000 rules, rate over that among 10",
        "",
        [many / few for many, few in zip(rates[10_000], rates[10], strict=True)],
        better="more",
        goal=Goal(0.8),
    )
