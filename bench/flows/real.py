"""The same with real agents: from a step done at one to `sbatch` for the next at another."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from pathlib import Path

from bench.edge.bed import Bed, bed
from bench.figure import Figure, figure
from bench.remote.found import Found
from pilotage.flow.model import Flow, Step
from tests.rigs.broker import edge_agent
from tests.rigs.project.flow_hub import Hub

_MS = 1000


def measure(scratch: Path, times: int, found: Found) -> None:
    """Send a chain to and fro between a site that runs jobs at once and one with Slurm."""
    with (
        bed(scratch, {"free": "1M"}) as one,
        edge_agent.at_local(scratch / "beside", one.edge.rabbit, beside=one.edge) as other,
    ):
        hub = Hub(scratch / "hub", one.edge)
        one.edge.start()
        other.start()
        with hub.up():
            # Fresh agents have to look at their programs.
            _run(hub, one, other.site, 2)
            before = len(one.calls("sbatch"))
            number = _run(hub, one, other.site, 2 * times)
        done = [each.heard for each in hub.attempts(number) if each.site == other.site]
        calls = one.calls("sbatch")[before:]
        if len(calls) != times or None in done:
            raise RuntimeError(hub.told())
        waits = [call - end for call, end in zip(calls, done, strict=True) if end is not None]
        found.add("sbatch", _MS * statistics.median(waits))


def _run(hub: Hub, one: Bed, other: str, steps: int) -> int:
    sites = itertools.cycle((other, one.edge.site))
    made: dict[str, Step] = {}
    for at in range(steps):
        needs = (f"s{at - 1}",) if at else ()
        made[f"s{at}"] = Step(application="count", sites=(next(sites),), needs=needs)
    number = hub.submit(Flow(name="real", steps=made))
    one.wait(lambda: hub.flow(number).ended is not None, 0.1)
    if hub.flow(number).state != "done":
        raise RuntimeError(hub.told())
    return number


def figures(found: Found, times: int) -> Iterator[Figure]:
    """Say what was found."""
    yield figure(
        "from the hub's hearing that a step is done to `sbatch` for the next one at a real agent, "
        "p50", "ms", found["sbatch"],
        note=f"{times} times; the agent's own time is in it",
    )  # fmt: skip
