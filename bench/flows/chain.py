"""How soon the next step is at another site, after one has said that it is done."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, Goal, figure, percentile
from bench.flows.bed import SITES, Bed, answered
from bench.remote.found import Found
from pilotage.flow.model import Flow, Step

_MS = 1000


def measure(one: Bed, steps: int, found: Found) -> None:
    """Send a chain through two sites, and the same jobs by the least that anybody could do."""
    with one.sites("bare") as file:
        one.relay(steps)
    found.add("relay", percentile(_gaps(file), 0.5))
    with one.sites("chain") as file, one.hub.up():
        # A fresh hub has to get acquainted with its broker.
        one.run(_chain(3))
        before = len(answered(file))
        one.run(_chain(steps))
    gaps = _gaps(file, before)
    found.add("hop", percentile(gaps, 0.5))
    found.add("hop p95", percentile(gaps, 0.95))


def _chain(steps: int) -> Flow:
    made: dict[str, Step] = {}
    for at in range(steps):
        needs = (f"s{at - 1}",) if at else ()
        made[f"s{at}"] = Step(application="nothing", sites=(SITES[at % 2],), needs=needs)
    return Flow(name="chain", steps=made)


def _gaps(file: Path, after: int = 0) -> list[float]:
    """Return the times from "done" at one site to the job at the next, in milliseconds."""
    jobs = answered(file)[after:]
    return [_MS * (later.came - sooner.said) for sooner, later in itertools.pairwise(jobs)]


def figures(found: Found, steps: int) -> Iterator[Figure]:
    """Say what was found."""
    middle = sorted(found["hop p95"])[len(found["hop p95"]) // 2]
    yield figure(
        "from a step done at one site to the next one at another, p50", "ms", found["hop"],
        limit=found["relay"], goal=Goal(20),
        note=f"a chain of {steps}, no data; both ways through the broker are in it, and in the "
        f"limit, which writes one row; p95 {middle:.3g} ms",
    )  # fmt: skip
