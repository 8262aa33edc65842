"""How fast jobs get into the queue of Slurm, and how often it is asked how they are."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from bench.figure import Figure, Goal, figure
from bench.remote.bed import ARRAYS, SINGLE, Bed
from bench.remote.found import Found
from bench.remote.ours import Held

_AT_ONCE = 4
_LOOP, _LOOPS = "sbatch loop", f"{_AT_ONCE} sbatch loops"
_RATES = (Goal(20), Goal(0.7, _LOOP))


def rates(bed: Bed, single: int, in_arrays: int, found: Found) -> None:
    """Submit jobs that are held, so that nothing else goes on: by loops at the site, and ours."""
    for name, at_once in ((_LOOP, 1), (_LOOPS, _AT_ONCE)):
        found.add(name, bed.login.loop(single, at_once=at_once))
        bed.settle()
    for site, count in ((SINGLE, single), (ARRAYS, in_arrays)):
        held = Held(bed, site, count)
        found.add(f"submitted, {site}", held.rate)
        held.cancel()


def queries(bed: Bed, count: int, seconds: float, found: Found) -> None:
    """Count how often the queue is looked at while jobs are in it."""
    held = Held(bed, SINGLE, count)
    before = bed.queries(SINGLE)
    time.sleep(seconds)
    found.add(f"queries, {count}", (bed.queries(SINGLE) - before) * bed.poll / seconds)
    held.cancel()


def figures(found: Found, queued: Sequence[int]) -> Iterator[Figure]:
    """Say what was found."""
    loops = {name: found[name] for name in (_LOOP, _LOOPS)}
    yield figure(
        "submissions, each an sbatch", "jobs/s", found[f"submitted, {SINGLE}"], better="more",
        peers=loops, goal=_RATES, note="held jobs; the loops run on the login node itself",
    )  # fmt: skip
    yield figure(
        "submissions, as arrays", "jobs/s", found[f"submitted, {ARRAYS}"], better="more",
        peers=loops,
    )  # fmt: skip
    for count in queued:
        name = f"status queries a cycle, {count} jobs in the queue"
        yield figure(name, "calls", found[f"queries, {count}"], goal=Goal(1))
