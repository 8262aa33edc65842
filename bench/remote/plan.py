"""Jobs at a cluster by SSH: Pilotage beside plain `ssh`, `sbatch` and `scp`, on a real Slurm."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.figure import Figure
from bench.remote import big, direct, pilots, submissions
from bench.remote.bed import SITES, bed
from bench.remote.found import Found
from bench.remote.ours import nothing, run


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything."""

    repeats: int = 5
    #: Jobs that are submitted at once, and fewer of them, to tell what one costs from the rest.
    jobs: int = 50
    few: int = 10
    #: Jobs that are only submitted: one by one, and as arrays.
    submitted: int = 100
    in_arrays: int = 1000
    #: Tiny jobs for a pilot.
    tiny: int = 2000
    #: How often big files are moved, how big they are, and how many jobs read one of them.
    moves: int = 3
    size: int = 10**9
    readers: int = 100
    #: Different big files that are moved at once.
    many: int = 5
    #: Jobs in the queue while status queries are counted, and for how long.
    queued: int = 500
    watched: float = 10.0


QUICK = Plan(
    repeats=1, jobs=10, few=4, submitted=12, in_arrays=100, tiny=100, moves=1, size=32_000_000,
    readers=8, many=2, queued=30, watched=4.0,
)  # fmt: skip


def figures(plan: Plan) -> Iterator[Figure]:
    """Measure everything, ours and the plain way in turn."""
    found = Found()
    with tempfile.TemporaryDirectory(prefix="pb-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        with bed(scratch / "a") as one:
            for site in SITES:
                run(one, [nothing(site)])
            for repeat in range(plan.repeats):
                direct.empty(one, plan.jobs, found)
                direct.data(one, plan.few, plan.jobs, found)
                submissions.rates(one, plan.submitted, plan.in_arrays, found)
                if repeat < plan.moves:
                    big.alone(one, plan.size, found)
                    big.shared(one, plan.size, plan.readers, found)
                    pilots.tiny(one, plan.tiny, found)
            big.different(one, plan.size, plan.many, found)
            for count in (plan.few, plan.queued):
                submissions.queries(one, count, plan.watched, found)
        with bed(scratch / "b", sandbox="bubblewrap") as one:
            for _ in range(plan.moves):
                pilots.boxed(one, plan.tiny // 4, found)
    yield from direct.figures(found, plan.few, plan.jobs)
    yield from submissions.figures(found, (plan.few, plan.queued))
    yield from pilots.figures(found, plan.tiny)
    yield from big.figures(found, plan.size, plan.readers, plan.many)
