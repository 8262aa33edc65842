"""How soon a message becomes a call of `sbatch`, and a change becomes a message; and what is idle.

The same again with many more jobs in the store.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.edge.bed import POLL_S, Bed, bed
from bench.figure import Figure, Goal, figure, percentile
from bench.remote.found import Found

_MS = 1000
#: How long the agent is left alone before it is looked at, in seconds.
_REST_S = 3.0
_JOBS = "SELECT count(*) FROM edge_job"
_OUT = "SELECT count(*) FROM submitted WHERE state = 'out'"


def measure(scratch: Path, times: int, watched: float, stored: Sequence[int], found: Found) -> None:
    """Send jobs one after the other, to an agent that has few and then many others."""
    for count in stored:
        limits = {"users": {"hub": 1}, "free": "1M"}
        with bed(scratch / f"with-{count}", limits) as one:
            _fill(one, count)
            _soon(one, times, count, found)
            time.sleep(_REST_S)
            _use(one, watched, f"{count}", found)


def idle(scratch: Path, watched: float, found: Found) -> None:
    """See what an agent uses that has nothing to do."""
    with bed(scratch, {"free": "1M"}) as one:
        one.edge.start()
        one.edge.wait_ended(one.edge.post("count"))
        time.sleep(_REST_S)
        _use(one, watched, "idle", found)


def restart(scratch: Path, active: int, found: Found) -> None:
    """Kill an agent that has many jobs at the batch system, and see how soon it goes on."""
    with bed(scratch, {"free": "1M"}) as one:
        edge = one.edge
        one.cluster.run("scontrol", "update", "partitionname=debug", "state=down")
        edge.start()
        edge.post_many("count", active)
        one.wait(lambda: one.count(_OUT) >= active, 0.2)
        before = len(one.calls("squeue"))
        time.sleep(20 * POLL_S)
        found.add(f"queries, {active}", (len(one.calls("squeue")) - before) / 20)
        edge.kill()
        began, submitted = time.time(), len(one.calls("sbatch"))
        edge.post("count")
        edge.start(ready=False)
        one.wait(lambda: len(one.calls("sbatch")) > submitted)
        found.add("restart", one.calls("sbatch")[submitted] - began)


def _fill(one: Bed, count: int) -> None:
    """Have jobs of somebody else in the store, all but one of which wait."""
    edge = one.edge
    edge.start()
    edge.post("gate", user="hub")
    one.wait(lambda: one.count(_JOBS) == 1)
    edge.post_many("count", count, user="hub")
    one.wait(lambda: one.count(_JOBS) > count, 0.2)
    one.wait(lambda: one.count("SELECT count(*) FROM edge_outbox") == 0, 0.2)


def _soon(one: Bed, times: int, count: int, found: Found) -> None:
    edge = one.edge
    delays: list[float] = []
    late: list[float] = []
    del edge.admin.heard[:]
    # The first one is not counted: a fresh agent has to look at its programs.
    for at in range(times + 1):
        before, sent = len(one.calls("sbatch")), time.time()
        key = edge.post("count")
        one.wait(functools.partial(_called, one, before), 0.002)
        if at:
            delays.append(_MS * (one.calls("sbatch")[before] - sent))
        edge.wait_ended(key)
        late += _late(one)
    found.add(f"sbatch, {count}", statistics.median(delays))
    found.add(f"status, {count}", statistics.median(late))
    found.add(f"status p95, {count}", percentile(late, 0.95))
    keys = edge.post_many("count", times)
    edge.wait_ended(*keys)
    found.add(f"status at once, {count}", statistics.median(_late(one)))


def _late(one: Bed) -> list[float]:
    """Say how old news was when it was heard, and forget it."""
    heard = [each for each in one.edge.raw() if "seq" in each.said]
    del one.edge.admin.heard[:]
    return [_MS * (each.when - each.said["time"]) for each in heard]


def _called(one: Bed, before: int) -> bool:
    return len(one.calls("sbatch")) > before


def _use(one: Bed, watched: float, name: str, found: Found) -> None:
    before = one.processor()
    time.sleep(watched)
    found.add(f"processor, {name}", 100 * (one.processor() - before) / watched)
    found.add(f"memory, {name}", one.memory())


def figures(found: Found, times: int, stored: Sequence[int], active: int) -> Iterator[Figure]:
    """Say what was found."""
    for count in stored:
        with_ = f", {count} other jobs in the store"
        yield figure(
            f"from message to sbatch, p50{with_}", "ms", found[f"sbatch, {count}"], goal=Goal(100)
        )
        yield figure(
            f"from change to its status message at a receiver, p50{with_}", "ms",
            found[f"status, {count}"], goal=Goal(50),
            note=f"p95 {statistics.median(found[f'status p95, {count}']):.3g} ms",
        )  # fmt: skip
        yield figure(
            f"the same, of {times} jobs that are sent at once{with_}", "ms",
            found[f"status at once, {count}"],
        )  # fmt: skip
        yield figure(
            f"processor while one job runs{with_}", "%", found[f"processor, {count}"],
            note="the agent, and its program that speaks with the batch system",
        )  # fmt: skip
        yield figure(
            f"memory{with_}", "MB", found[f"memory, {count}"], goal=Goal(100), note="both together"
        )
    yield figure(
        "processor while there is nothing to do", "%", found["processor, idle"], goal=Goal(1),
        note="both together",
    )  # fmt: skip
    yield figure("memory then", "MB", found["memory, idle"], goal=Goal(100), note="both together")
    yield figure(
        f"scheduler queries a cycle, {active} jobs there", "calls", found[f"queries, {active}"],
        goal=Goal(1),
    )  # fmt: skip
    yield figure(
        f"killed with {active} jobs at the batch system: from its start to the next sbatch", "s",
        found["restart"], goal=Goal(5),
    )  # fmt: skip
