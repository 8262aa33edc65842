"""What became of jobs that are attempts, as rows.

The end of a job ends its attempt, unless its data is to be looked at first. Steps of a silent site
run elsewhere if they may.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pilotage.bus.model import Result, Status
from pilotage.edge import records as edges
from pilotage.flow import definition, moves, records, results
from pilotage.flow.ends import OVER
from pilotage.flow.model import End
from pilotage.flow.records import AttemptRow
from pilotage.job import moves as job_moves
from pilotage.match import sites
from pilotage.store import Db

#: News of jobs, and attempts, that are looked at together.
AT_ONCE = 1000
#: Whose doing the end of a job is, where its site has not said so.
_KINDS = {"failed": "application", "rejected": "policy", "cancelled": "person"}


class Heard(msgspec.Struct, frozen=True):
    """What came of news on attempts."""

    #: Attempts whose data is to be looked at, as (task, number).
    check: tuple[tuple[int, int], ...] = ()
    #: Attempts that ended.
    ended: int = 0
    #: Whether there may be more.
    more: bool = False


def news(db: Db, now: float) -> Heard:
    """Take in what became of the jobs of attempts."""
    rows = db.rows("flows_news", most=AT_ONCE)
    check: list[tuple[int, int]] = []
    ended = 0
    for seq, state, reason, key, kind, code, left in rows:
        if not key:
            continue
        how = _state(state, code)
        if left is not None and how in OVER:
            db.run("flows_left", key=key, left=left)
        counts = moves.hear(
            db, key, seq, how, reason, kind or _KINDS.get(state, ""), code or "", now
        )
        attempt = records.by_key(db, key) if counts and how in OVER else None
        if attempt is None:
            continue
        if wants_check(attempt):
            check.append((attempt.task, attempt.number))
        else:
            ended += finish(db, attempt, now)
    if rows:
        db.run("flows_news_taken", last=rows[-1][0])
    return Heard(tuple(check), ended, len(rows) == AT_ONCE)


def _state(state: str, code: str | None) -> str:
    """Return the state of an attempt by that of its job; what a site has forgotten is lost."""
    return "lost" if state == "failed" and code == edges.FORGOTTEN else str(state)


def wants_check(attempt: AttemptRow) -> bool:
    """Say whether the data of an attempt is to be looked at before its end counts."""
    if attempt.state == "done":
        return bool(attempt.place)
    # What it could not read may be gone where it was left.
    return attempt.state == "failed" and attempt.kind == "staging"


def finish(db: Db, attempt: AttemptRow, now: float) -> bool:
    """End an attempt that is over, unless its data is to be looked at first."""
    if attempt.ended is not None or wants_check(attempt):
        return False
    return moves.end(db, attempt.task, attempt.number, end_of(attempt), now)


def end_of(attempt: AttemptRow) -> End:
    """Say how an attempt ended by what was heard of it."""
    state: Any = attempt.state
    return End(state=state, reason=attempt.reason, kind=attempt.kind, code=attempt.code)


# -- at sites with an agent -----------------------------------------------------------------------


class FlowSteps:
    """Hears of steps what concerns their workflows; see `edge.statuses.StepEvents`."""

    def resent(
        self, db: Db, site: str, key: str, word: Status | Result, now: float, /
    ) -> None:  # fmt: skip
        """Hear that outputs which were asked for again were sent, or cannot be."""
        attempt = records.by_site_key(db, key)
        if attempt is None or attempt.site != site:
            return
        results.told(db, attempt, now)
        if isinstance(word, Status) and word.left and attempt.ended is None:
            # What was found there once stays what others rely on.
            db.run("flows_digest", key=attempt.key, digest=word.left[0].digest)

    def silent(self, db: Db, job: int, reason: str, now: float, /) -> None:
        """Leave a site that says nothing of a step, or say that it is waited for."""
        attempt = records.by_job(db, job)
        if attempt is None or attempt.ended is not None:
            return
        if _elsewhere(db, attempt):
            moves.fence(db, attempt.task, now, reason)
        else:
            db.run("flows_say", task=attempt.task, number=attempt.number, reason=reason)

    def offered(self, db: Db, site: str, applications: Sequence[str], now: float, /) -> None:
        """Refuse steps that have waited for a site which does not have their application."""
        known = sites.offering(site, tuple(applications))
        for number, name in db.rows("flows_waiting_at", site=site):
            found = known.object(site, name, named=True)
            if found is not None:
                job_moves.reject(db, number, sites.sentence(found, now), now=now)

    def strand(self, db: Db, before: float, now: float, /) -> None:
        """Leave silent sites that jobs of steps have waited for since a time."""
        for (job,) in db.rows("flows_stranded", before=before, most=AT_ONCE):
            attempt = records.by_job(db, job)
            if attempt is not None and _elsewhere(db, attempt):
                moves.fence(db, attempt.task, now, f"{attempt.site} is silent")


def _elsewhere(db: Db, attempt: AttemptRow) -> bool:
    """Say whether a task may run at another site than that of its attempt."""
    step = definition.step(db, attempt.flow, records.task(db, attempt.task).step)
    return step.on_failure == "other_site" and (not step.sites or {*step.sites} != {attempt.site})
