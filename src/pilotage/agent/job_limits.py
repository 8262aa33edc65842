"""Limits on jobs at once: by user, by queue and in total. Other jobs wait, the oldest first.

Jobs that wait for room of one user or queue do not delay others. Limits are checked in the
transactions that change the counts, so that none is ever exceeded.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence

import anyio

from pilotage.agent.settings import RunningLimits, Settings
from pilotage.job import moves
from pilotage.job.model import State
from pilotage.job.retry import Next
from pilotage.store import Db, Writer

#: Seconds between two checks while jobs wait for room, and while none does.
_SOON_S = 0.1
_LATE_S = 0.5
#: Jobs that are started in one transaction at most.
_MOST = 500

#: A user and a queue.
Group = tuple[str, str]


class ActiveJobs:
    """Counts of active jobs by user and queue."""

    def __init__(self, counts: Mapping[Group, int]) -> None:
        """Take how many there are by user and queue."""
        self.all = 0
        self.users: dict[str, int] = {}
        self.queues: dict[str, int] = {}
        for group, count in counts.items():
            self.add(group, count)

    def add(self, group: Group, count: int = 1) -> None:
        """Count more of them."""
        user, queue = group
        self.all += count
        self.users[user] = self.users.get(user, 0) + count
        self.queues[queue] = self.queues.get(queue, 0) + count

    def why_not(self, group: Group, limits: RunningLimits) -> str:
        """Return why one more must wait; empty if it need not."""
        user, queue = group
        bounds = (
            (self.all, limits.jobs, "jobs run here"),
            (self.users.get(user, 0), limits.users.get(user, limits.user), f"jobs of {user} run"),
            (
                self.queues.get(queue, 0),
                limits.queues.get(queue, limits.queue),
                f"jobs are in the queue {queue}" if queue else "jobs are in the usual queue",
            ),
        )
        for count, most, what in bounds:
            if most and count >= most:
                return f"waits: {count} {what}; the limit is {most}"
        return ""


def grant(
    waiting: Mapping[Group, Sequence[int]],
    active: ActiveJobs,
    limits: RunningLimits,
    most: int = _MOST,
) -> list[int]:
    """Choose the jobs that may start now, the oldest first, and count them."""
    chosen: list[int] = []
    heads = [(jobs[0], group, 0) for group, jobs in waiting.items() if jobs]
    heapq.heapify(heads)
    while heads and len(chosen) < most:
        job, group, at = heapq.heappop(heads)
        if active.why_not(group, limits):
            continue
        active.add(group)
        chosen.append(job)
        if at + 1 < len(waiting[group]):
            heapq.heappush(heads, (waiting[group][at + 1], group, at + 1))
    return chosen


def settle(db: Db, limits: RunningLimits, now: float) -> tuple[ActiveJobs, int]:
    """Start waiting jobs within the limits; return the active jobs, and how many were started."""
    active = ActiveJobs({(user, queue): count for user, queue, count in db.rows("edge_going")})
    groups = [(user, queue) for user, queue, _ in db.rows("edge_waiting_groups")]
    attempts: dict[int, int] = {}
    waiting: dict[Group, list[int]] = {}
    for user, queue in groups:
        if active.why_not((user, queue), limits):
            continue
        rows = db.rows("edge_waiting_of", user=user, queue=queue, most=_MOST)
        attempts.update(rows)
        waiting[user, queue] = [job for job, _ in rows]
    chosen = grant(waiting, active, limits)
    for job in chosen:
        moves.move(db, job, attempts[job], State.WAITING, Next(State.QUEUED, ""), now=now)
    return active, len(chosen)


class JobLimits:
    """Starts waiting jobs when the limits allow it."""

    def __init__(
        self, writer: Writer, settings: Callable[[], Settings], now: Callable[[], float],
        poke: Callable[[], None], pilots: Callable[[Db, ActiveJobs, float], int],
    ) -> None:  # fmt: skip
        """Prepare; `run` starts it. `pilots` starts those of hubs."""
        self._writer = writer
        self._settings = settings
        self._now = now
        self._poke = poke
        self._pilots = pilots

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            waiting, let = await self._writer.run(self._look)
            if let:
                self._poke()
            await anyio.sleep(_SOON_S if waiting else _LATE_S)

    def _look(self, db: Db) -> tuple[int, int]:
        waiting = int(db.value("edge_waiting_count"))
        if not waiting:
            return 0, 0
        active, let = settle(db, self._settings().limits, self._now())
        return waiting, let + self._pilots(db, active, self._now())
