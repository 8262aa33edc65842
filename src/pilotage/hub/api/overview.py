"""Summary of the hub: counts and rates of jobs, pilots, cores and alarms."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from pilotage.hub.api import answers, pilots
from pilotage.hub.api.answers import Rates
from pilotage.hub.api.call import ApiCall
from pilotage.hub.api.reader import Memo
from pilotage.job.machine import FINAL
from pilotage.job.model import State
from pilotage.store import Db

_HISTORY_S = 3600.0
#: A site without samples for this time is not counted.
_STALE_S = 60.0
#: Seconds over which rates are measured.
_SPAN_S = 60.0
#: Behind by more lines than this, counting again is quicker than following.
_MOST_LINES = 100_000
_RECENT = 20_000
#: Jobs that were forgotten leave no line: everything is counted again after this time, or
#: after a multiple of the time that counting takes.
_RECOUNT_S = 60.0
_RECOUNT_TIMES = 200.0


@dataclass(eq=False)
class JobCounts:
    """Counts of jobs; one thread at a time."""

    #: Jobs by state.
    counts: Counter[str] = field(default_factory=Counter, init=False)
    #: Since this process began to look: jobs submitted and started, and ends by state.
    submitted: int = field(default=0, init=False)
    started: int = field(default=0, init=False)
    ended: Counter[str] = field(default_factory=Counter, init=False)
    _line: int = field(default=-1, init=False)
    _job: int = field(default=0, init=False)
    _recount: float = field(default=0.0, init=False)
    _steps: deque[tuple[float, int, int, int]] = field(default_factory=deque, init=False)

    def catch_up(self, db: Db, now: float) -> None:
        """Follow the journal to its end."""
        last = int(db.value("journal_last"))
        newest = int(db.value("job_last"))
        first = self._line < 0
        if last < self._line:
            return  # this connection sees an earlier moment than another that was here before
        if first:
            self._look_back(db, last, newest, now)
        elif last > self._line:
            self._note(now, newest - self._job, Counter(self._lines(db, last)), total=True)
        if first or last - self._line > _MOST_LINES or time.monotonic() > self._recount:
            self._count(db)
        elif last > self._line:
            self._follow(db, last)
        self._line, self._job = last, newest
        while self._steps and self._steps[0][0] < now - _SPAN_S:
            self._steps.popleft()

    def rates(self, now: float) -> Rates:
        """Return the rates at which jobs are submitted, started and ended."""
        if not self._steps:
            return Rates(0.0, 0.0, 0.0)
        span = min(_SPAN_S, max(1.0, now - self._steps[0][0]))
        sums = (sum(step[n] for step in self._steps) for n in (1, 2, 3))
        submitted, started, ended = (round(each / span, 3) for each in sums)
        return Rates(submitted, started, ended)

    def _lines(self, db: Db, last: int) -> dict[str, int]:
        return dict(db.rows("api_lines", after=self._line, until=last))

    def _look_back(self, db: Db, last: int, newest: int, now: float) -> None:
        """Begin with the rates of the last minute, as far as the newest lines tell."""
        seq, since, job = db.rows("api_recent", since=now - _SPAN_S, most=_RECENT)[0]
        self._line = last if seq is None else seq - 1
        lines = Counter(self._lines(db, last))
        self._note(since or now, 0 if job is None else newest - job + 1, lines, total=False)

    def _note(self, at: float, submitted: int, lines: Counter[str], *, total: bool) -> None:
        started = lines[State.RUNNING]
        ends = Counter({state: lines[state] for state in FINAL if lines[state]})
        self._steps.append((at, submitted, started, ends.total()))
        if total:
            self.submitted += submitted
            self.started += started
            self.ended += ends

    def _count(self, db: Db) -> None:
        began = time.monotonic()
        self.counts = Counter(dict(db.rows("api_counts")))
        took = time.monotonic() - began
        self._recount = began + max(_RECOUNT_S, took * _RECOUNT_TIMES)

    def _follow(self, db: Db, last: int) -> None:
        for state, before, count in db.rows("api_moves", after=self._line, until=last):
            self.counts[state] += count
            if before is not None:
                self.counts[before] -= count
        self.counts = +self.counts


@dataclass(eq=False)
class Overviews:
    """Counts and expensive answers, kept for all requests."""

    tally: JobCounts = field(default_factory=JobCounts, init=False)
    memo: Memo = field(default_factory=Memo, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def count(self, db: Db, now: float) -> None:
        """Bring the counts up to date."""
        with self._lock:
            self.tally.catch_up(db, now)

    def overview(self, db: Db, now: float, since: float) -> answers.Overview:
        """Return the summary, with the history since a time."""
        self.count(db, now)
        last = db.rows("api_history", since=now - _STALE_S)
        cpus, used = last[-1][2:] if last else self.cores(db)
        history = db.rows("api_history", since=since)
        return answers.Overview(
            now,
            dict(self.tally.counts),
            self.tally.rates(now),
            self.pilots(db),
            cpus,
            used,
            alarms(db),
            history,
        )

    def pilots(self, db: Db) -> dict[str, int]:
        """Count pilots by state."""
        return self.memo.get("pilots", lambda: dict(db.rows("api_pilot_counts")))

    def cores(self, db: Db) -> tuple[int, int]:
        """Count cores and those in use, where there is no sample."""
        return self.memo.get("cores", lambda: pilots.cores(db))

    def owners(self, db: Db) -> list[tuple[Any, ...]]:
        """Count jobs that run or wait by owner."""
        return self.memo.get("owners", lambda: db.rows("api_owners"))

    def show(self, db: Db, call: ApiCall) -> answers.Overview:
        """Answer with the history of the last hour."""
        return self.overview(db, call.now, call.now - _HISTORY_S)

    def shares(self, db: Db, call: ApiCall) -> answers.Shares:
        """Answer who has used how much."""
        return pilots.shares(db, call, self.owners(db))


def alarms(db: Db) -> list[answers.Alarm]:
    """Read the alarms."""
    return [answers.Alarm(*one) for one in db.rows("alarm_all")]
