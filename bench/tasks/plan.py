"""Tasks that do nothing: Pilotage beside HyperQueue, Parsl, Dask and Ray, with two workers each."""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from bench import machine
from bench.figure import Figure, Goal, figure, percentile
from bench.tasks import limit, system
from bench.tasks.system import OURS, PEERS


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything."""

    repeats: int = 5
    processes: int = 1000
    functions: int = 10_000
    #: How often one task alone is timed.
    single: int = 100


QUICK = Plan(repeats=1, processes=200, functions=1000, single=20)

_WORKERS = 2
#: What was found of each way, by system: a rate, or the seconds of one task.
_Found = Mapping[str, Mapping[str, Sequence[float]]]
_FASTEST = ", fastest"
_PROCESSES = (Goal(2.5, "HyperQueue"), Goal(5, "Parsl"), Goal(4, "Dask"), Goal(1.5, "Ray"))
_FUNCTIONS = (Goal(50, "Parsl"), Goal(50, "Dask"), Goal(50, "Ray"))
_DURABLE = "our results are on disk; those of the peers are lost with their processes"
_QUICKEST = "Parsl and Dask: a function with `posix_spawn`; Ray: that in chunks, by `Pool.map`"
_CHUNKS = "Dask: a bag of two partitions; Ray: `Pool.map`, in chunks; Parsl: as above"


def figures(plan: Plan) -> Iterator[Figure]:
    """Measure everything: in each repeat each system alone, and the machine's limits."""
    system.python()
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory(prefix="pb-", ignore_cleanup_errors=True) as folder:
        for repeat in range(plan.repeats):
            rate = limit.rate(count=plan.processes, workers=_WORKERS)
            found["processes"]["limit"].append(rate)
            found["process"]["limit"].append(1e3 * limit.alone(times=plan.single))
            for name in _turn((OURS, *PEERS), repeat):
                for way, value in _measure(name, Path(folder), plan):
                    found[way][name].append(value)
                    _tell(f"{repeat + 1}. {name}, {way}: {value:.4g}")
    yield from _figures(plan, found)


def _turn(names: tuple[str, ...], by: int) -> tuple[str, ...]:
    """Let another be the first each time, so that nobody is always next to the same noise."""
    by %= len(names)
    return names[by:] + names[:by]


def _measure(name: str, scratch: Path, plan: Plan) -> Iterator[tuple[str, float]]:
    with system.running(name, scratch) as one:
        for way in sorted(one.ways):
            kind = way.removesuffix(_FASTEST)
            if kind in {"process", "function"}:
                yield way, 1e3 * percentile(one.time(way, 1, plan.single), 0.5)
            else:
                count = plan.processes if kind == "processes" else plan.functions
                yield way, count / one.time(way, count)[0]


def _figures(plan: Plan, found: _Found) -> Iterator[Figure]:
    limits = found["processes"]["limit"]
    for way, name, goals, note in (
        ("processes", f"{plan.processes} processes", (*_PROCESSES, Goal(0.75, "limit")), _DURABLE),
        ("processes, fastest", f"{plan.processes} processes, the fastest way", (), _QUICKEST),
        ("functions", f"{plan.functions} functions", _FUNCTIONS, _DURABLE),
        ("functions, fastest", f"{plan.functions} functions, the fastest way", (), _CHUNKS),
    ):
        kind = way.removesuffix(_FASTEST)
        if not found[kind][OURS]:
            continue
        yield figure(
            name,
            "tasks/s",
            found[kind][OURS],
            better="more",
            peers={who: found[way][who] or found[kind][who] for who in PEERS},
            limit=limits if kind == "processes" else (),
            goal=goals,
            note=note,
        )
    for way in ("process", "function"):
        if not found[way][OURS]:
            continue
        peers = {who: found[way][who] for who in PEERS if found[way][who]}
        yield figure(
            f"one {way}: submit to result, p50",
            "ms",
            found[way][OURS],
            peers=peers,
            limit=found[way]["limit"],
            goal=[Goal(1, who) for who in peers],
            note="the peers in their fastest way",
        )


def _tell(text: str) -> None:
    print(f"{text}  (load {machine.load()})", file=sys.stderr, flush=True)
