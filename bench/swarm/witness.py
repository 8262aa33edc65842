"""What went wrong, by the word of those who saw it: the pilots' own log against the store."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import apsw
import msgspec

from bench.swarm.swarm import Start


class Attempt(msgspec.Struct, frozen=True):
    """A line of the store about an attempt."""

    job: int
    number: int
    state: str


class Record(msgspec.Struct, frozen=True):
    """What the store says in the end."""

    #: Jobs and their states.
    jobs: Mapping[int, str]
    attempts: tuple[Attempt, ...]
    #: How often the journal says that a job ended well.
    ends: Mapping[int, int]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """How often each promise was broken."""

    #: Jobs that began again although the pilot that had them was alive.
    doubled: int
    #: Attempts that began on two pilots, or twice on one.
    twice: int
    #: Jobs that have not ended, or more than once.
    unended: int
    #: Starts that the store does not know.
    unknown: int

    @property
    def violations(self) -> int:
        """All of them."""
        return self.doubled + self.twice + self.unended + self.unknown


def judge(starts: Iterable[Start], lost: set[int], record: Record) -> Verdict:
    """Compare what pilots saw with the store; `lost` are the pilots that were killed."""
    starts = list(starts)
    seen = Counter(one.key for one in starts)
    by_job: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for one in starts:
        job, number = map(int, one.key.split("."))
        by_job[job].append((number, one.pilot))
    attempts = {(one.job, one.number) for one in record.attempts}
    done = Counter(one.job for one in record.attempts if one.state == "done")
    return Verdict(
        doubled=sum(_again(several, lost) for several in by_job.values()),
        twice=sum(count - 1 for count in seen.values()),
        unended=sum(
            state != "done" or done[job] != 1 or record.ends.get(job) != 1
            for job, state in record.jobs.items()
        ),
        unknown=sum((job, number) not in attempts for job in by_job for number, _ in by_job[job]),
    )


def _again(several: list[tuple[int, int]], lost: set[int]) -> bool:
    """Say whether a job began again although an earlier attempt's pilot was not lost."""
    earlier = sorted(several)[:-1]
    return any(pilot not in lost for _, pilot in earlier)


def read(root: Path) -> Record:
    """Read the store of a project."""
    db = apsw.Connection(str(root / ".pilotage" / "store.db"), flags=apsw.SQLITE_OPEN_READONLY)
    db.set_busy_timeout(10_000)
    try:
        ends = "SELECT job, count(*) FROM journal WHERE state = 'done' GROUP BY job"
        return Record(
            dict(db.execute("SELECT id, state FROM job")),
            tuple(Attempt(*row) for row in db.execute("SELECT job, number, state FROM attempt")),
            dict(db.execute(ends)),
        )
    finally:
        db.close()
