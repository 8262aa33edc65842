"""Workflows: a hub and a real broker; sites answer at once, so that the hub's own time is left."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.figure import Figure
from bench.flows import chain, here, real, wide
from bench.flows.bed import Bed
from bench.remote.found import Found
from testbed.rabbit import Rabbit
from tests.rigs.broker.edge_agent import ADMIN, AGENT


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything."""

    repeats: int = 3
    #: Steps of a chain.
    steps: int = 200
    #: Tasks, and steps, of fans; the first and the last are compared.
    sizes: tuple[int, ...] = (1_000, 10_000)
    #: How often a step follows another at a real agent with Slurm.
    times: int = 10
    #: Steps of a workflow that runs here and hands data on.
    here: int = 5


QUICK = Plan(repeats=1, steps=20, sizes=(50, 200), times=2)


def figures(plan: Plan) -> Iterator[Figure]:
    """Measure everything."""
    found = Found()
    with (
        tempfile.TemporaryDirectory(prefix="pb-", ignore_cleanup_errors=True) as folder,
        Rabbit(users=(AGENT, ADMIN)) as rabbit,
    ):
        for repeat in range(plan.repeats):
            chain.measure(Bed(Path(folder, f"c{repeat}"), rabbit), plan.steps, found)
            wide.measure(Bed(Path(folder, f"w{repeat}"), rabbit), plan.sizes, found)
    with tempfile.TemporaryDirectory(prefix="pb-", ignore_cleanup_errors=True) as folder:
        for repeat in range(plan.repeats):
            real.measure(Path(folder, f"r{repeat}"), plan.times, found)
            here.measure(Path(folder, f"h{repeat}"), plan.here, plan.times, found)
    yield from chain.figures(found, plan.steps)
    yield from real.figures(found, plan.times)
    yield from here.figures(found, plan.here)
    yield from wide.figures(found, plan.sizes)
