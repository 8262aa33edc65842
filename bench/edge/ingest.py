"""How fast messages become jobs that are on disk, beside the least that anybody could do."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.edge.bed import bed
from bench.figure import Figure, Goal, figure
from bench.remote.found import Found
from tests.rigs.broker.edge_agent import AGENT

_TAKEN = "SELECT count(*) FROM edge_job"
_UNTOLD = "SELECT count(*) FROM edge_outbox"
_GLANCE_S = 0.02


def measure(scratch: Path, count: int, found: Found) -> None:
    """Let messages wait at the broker, and see how fast they are taken."""
    # All but one wait, so that nothing else goes on than what is measured.
    with bed(scratch, {"jobs": 1, "free": "1M"}) as one:
        edge = one.edge
        edge.start()
        edge.post("gate")
        one.wait(lambda: one.count(_TAKEN) == 1)
        edge.stop()
        edge.post_many("count", count)
        edge.start(ready=False)
        first = last = (0.0, 0)
        one.wait(lambda: one.count(_TAKEN) > 1, _GLANCE_S)
        while last[1] <= count:
            last = (time.monotonic(), one.count(_TAKEN))
            first = first if first[1] else last
            time.sleep(_GLANCE_S)
        found.add("ingest", (last[1] - first[1]) / (last[0] - first[0]))
        one.wait(lambda: one.count(_UNTOLD) == 0, _GLANCE_S)
        found.add("told", (last[1] - first[1]) / (time.monotonic() - first[0]))
        edge.stop()
        edge.post_many("count", count)
        papers = edge.rabbit.papers[AGENT]
        words = [
            edge.rabbit.url, edge.rabbit.authority.certificate, *papers, edge.queues[0], count,
            scratch / "bare.db",
        ]  # fmt: skip
        said = subprocess.run(
            [sys.executable, "-m", "bench.edge.bare", *map(str, words)],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        found.add("bare", float(said.stdout))


def figures(found: Found) -> Iterator[Figure]:
    """Say what was found."""
    yield figure(
        "job messages taken, each on disk before it is acknowledged", "messages/s",
        found["ingest"], better="more", limit=found["bare"], goal=Goal(2000),
        note="the limit is one row a message, with no checks; news of them waits up to 2 s",
    )  # fmt: skip
    yield figure(
        "the same, until the first status message of each is confirmed", "messages/s",
        found["told"], better="more",
    )  # fmt: skip
