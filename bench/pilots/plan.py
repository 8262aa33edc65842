"""Pilots: how many, how fast they join, what each costs, and what is lost when they are killed."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench import machine
from bench.figure import Figure, Goal, figure
from bench.pilots.chaos import Chaos, Kills, chaos
from bench.pilots.crowd import Crowd, crowd
from bench.pilots.joining import joining


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything."""

    repeats: int = 3
    joining: int = 3000
    #: A process may have 20 000 open files, so pilots share connections.
    pilots: int = 20_000
    cores: int = 5
    together: int = 10
    #: How often the largest crowd is gathered.
    crowds: int = 1
    kills: Kills = Kills()


QUICK = Plan(
    repeats=1,
    joining=500,
    pilots=1000,
    kills=Kills(pilots=30, hubs=2, alive=20, jobs=600, within=8.0, patience=60.0, lease=3),
)


def figures(plan: Plan) -> Iterator[Figure]:
    """Measure everything."""
    plain, tls, crowds = [], [], []
    with tempfile.TemporaryDirectory(prefix="pilotage-bench-", ignore_cleanup_errors=True) as home:
        scratch = Path(home)
        for repeat in range(plan.repeats):
            plain.append(joining(scratch, pilots=plan.joining, tls=False))
            tls.append(joining(scratch, pilots=plan.joining, tls=True))
            _tell(f"{repeat + 1}. joining: {plain[-1]:.0f}/s, {tls[-1]:.0f}/s with TLS")
        for _ in range(plan.crowds):
            crowds.append(
                crowd(scratch, pilots=plan.pilots, cores=plan.cores, together=plan.together)
            )
            _tell(f"crowd: {crowds[-1]}")
        storm = chaos(scratch, plan.kills)
        _tell(f"chaos: {storm}")
    yield from _joining(plan, plain, tls)
    yield from _crowd(plan, crowds)
    yield from _chaos(plan, storm)


def _joining(plan: Plan, plain: list[float], tls: list[float]) -> Iterator[Figure]:
    for word, rates in (("", plain), (" with TLS", tls)):
        yield figure(
            f"{plan.joining} pilots joining{word}, a connection each",
            "pilots/s",
            rates,
            better="more",
            goal=Goal(1000),
        )


def _crowd(plan: Plan, crowds: Sequence[Crowd]) -> Iterator[Figure]:
    jobs = plan.pilots * plan.cores
    many = f"{plan.pilots} pilots with {plan.cores} cores each"
    yield figure(
        f"{many}: jobs that run at once",
        "jobs",
        [float(one.running) for one in crowds],
        better="more",
        goal=Goal(float(jobs)),
        note=f"{plan.together} pilots on a connection",
    )
    yield figure(
        f"{many}, all running: memory of the hub",
        "MB",
        [one.with_jobs / 1e6 for one in crowds],
        goal=Goal(1000),
        note=f"{crowds[-1].empty / 1e6:.0f} MB without any",
    )
    yield figure(
        "memory of the hub a connected pilot",
        "kB",
        [(one.with_pilots - one.empty) / plan.pilots / 1e3 for one in crowds],
    )
    yield figure(
        "memory of the hub a running job",
        "kB",
        [(one.with_jobs - one.with_pilots) / jobs / 1e3 for one in crowds],
        goal=Goal(2),
    )
    for name, rates, unit in (
        ("starts only, none ends, submission included", [one.starts for one in crowds], "starts/s"),
        (f"joining, {plan.together} on a connection", [one.joining for one in crowds], "pilots/s"),
    ):
        yield figure(f"{many}: {name}", unit, rates, better="more")


def _chaos(plan: Plan, storm: Chaos) -> Iterator[Figure]:
    found = msgspec.structs.asdict(storm.verdict)
    killed = f"{storm.pilots_killed} pilots and {storm.hubs_killed} hubs killed"
    words = ", ".join(f"{count} {name}" for name, count in found.items())
    yield figure(
        f"{plan.kills.jobs} jobs, {killed}: promises broken",
        "",
        [float(storm.verdict.violations)],
        goal=Goal(0),
        note=f"{words}; {storm.starts} starts, {storm.refused} pilots refused, "
        f"in {storm.seconds:.0f} s",
    )


def _tell(text: str) -> None:
    print(f"{text}  (load {machine.load()})", file=sys.stderr, flush=True)
