"""A workflow whose steps run here and hand data on: from its submission to its result at home."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure, Goal, figure
from bench.remote.found import Found
from pilotage.flow import read, records
from pilotage.flow.model import Flow
from pilotage.hub.project import Project
from tests.rigs.project.flow_hub import FINAL, Hub

#: Each step reads what the one before has left, and leaves as much.
_BYTES = 1_000_000
_PATIENCE_S = 60.0


def measure(scratch: Path, steps: int, times: int, found: Found) -> None:
    """Run the same workflow several times, one after the other."""
    hub = Hub(scratch / "hub")
    (hub.root / "first").write_bytes(b"x" * _BYTES)
    with hub.up():
        # The first one is not counted: a fresh hub has to make its folders.
        some = [_seconds(hub, steps, at) for at in range(times + 1)][1:]
    found.add(f"here, {steps}", statistics.median(some))


def _seconds(hub: Hub, steps: int, at: int) -> float:
    flow = _flow(steps)
    began = time.monotonic()
    number = hub.submit(flow, key=f"here-{at}")
    end = hub.root / "home" / f"{number}" / "data"
    # To open the store at each look would take of the processor that the hub needs.
    with Project(hub.root) as project:
        while records.flow(project.db, number).state not in FINAL or not end.exists():
            if time.monotonic() > began + _PATIENCE_S:
                raise TimeoutError(hub.told())
            time.sleep(0.005)
    took = time.monotonic() - began
    if hub.flow(number).state != "done" or end.stat().st_size != _BYTES:
        raise RuntimeError(hub.told())
    return took


def _flow(steps: int) -> Flow:
    made: dict[str, Any] = {}
    for at in range(steps):
        source = f"s{at - 1}/data" if at else "./first"
        made[f"s{at}"] = {
            "inputs": [{"from": source, "as": "before"}], "run": ["cp", "before", "data"],
            "outputs": ["data"],
        }  # fmt: skip
    outputs = {"end": f"s{steps - 1}/data"}
    return read.from_dict({"name": "here", "to": "home", "step": made, "outputs": outputs})


def figures(found: Found, steps: int) -> Iterator[Figure]:
    """Say what was found."""
    yield figure(
        f"{steps} steps here, each reads what the one before left: to the result at home", "s",
        found[f"here, {steps}"], goal=Goal(0.3), note="1 MB is handed on, durably, and comes home",
    )  # fmt: skip
