"""The edge service: a real RabbitMQ with certificates, a real Slurm, and an agent between them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.edge import carriers, delays, ingest, shared
from bench.figure import Figure
from bench.remote.found import Found


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything."""

    repeats: int = 3
    #: Messages that wait at the broker.
    messages: int = 10_000
    #: Jobs that are sent one after the other, while so many others are in the store.
    times: int = 30
    stored: tuple[int, ...] = (100, 100_000)
    #: Jobs at the batch system while the agent is killed.
    active: int = 10_000
    #: How long nothing happens, in seconds.
    watched: float = 30.0
    #: Jobs that read one file, and its size in bytes.
    readers: int = 200
    size: int = 100_000_000


QUICK = Plan(
    repeats=1, messages=500, times=5, stored=(10, 500), active=200, watched=5.0, readers=10,
    size=10_000_000,
)  # fmt: skip


def figures(plan: Plan) -> Iterator[Figure]:
    """Measure everything."""
    found = Found()
    with tempfile.TemporaryDirectory(prefix="pb-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        for repeat in range(plan.repeats):
            ingest.measure(scratch / f"i{repeat}", plan.messages, found)
        for repeat in range(plan.repeats):
            delays.idle(scratch / f"n{repeat}", plan.watched, found)
            delays.measure(scratch / f"d{repeat}", plan.times, plan.watched, plan.stored, found)
            delays.restart(scratch / f"r{repeat}", plan.active, found)
            carriers.measure(scratch / f"c{repeat}", plan.times, found)
            shared.measure(scratch / f"s{repeat}", plan.readers, plan.size, found)
    yield from ingest.figures(found)
    yield from carriers.figures(found)
    yield from shared.figures(found, plan.readers, plan.size)
    yield from delays.figures(found, plan.times, plan.stored, plan.active)
