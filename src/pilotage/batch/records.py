"""Submissions in the store: the intent is there before the batch system is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from pilotage.base import text
from pilotage.batch.submission import ArrayTask, Submission
from pilotage.batch.system.model import BatchOrder
from pilotage.match.place import queue_mark
from pilotage.store import Db

#: Characters of a reason that are kept.
_LONGEST = 400
_order = msgspec.json.Decoder(BatchOrder)


def number(db: Db, site: str) -> int:
    """Find the number of a site, and give it one if it has none."""
    return int(db.value("site_number", name=site))


def show(db: Db, site: str, trouble: str, since: float, facts: str, now: float) -> None:
    """Record the state of a site."""
    db.run("site_show", name=site, trouble=trouble, since=since, facts=facts, now=now)


def steps(db: Db, jobs: Sequence[int]) -> frozenset[int]:
    """Return which of some jobs are steps of workflows: this hub has written their paths itself."""
    return frozenset(row[0] for row in db.rows("flow_jobs_among", jobs=text.dump(list(jobs))))


def asked(db: Db, site: str) -> str:
    """Read what a person asked of a site."""
    return str(db.value("site_asked", name=site) or "")


def ask(db: Db, site: str, asked: str, *, by: str, why: str, now: float) -> None:
    """Drain a site, or let it take work again; the first request is kept."""
    db.run("site_ask", name=site, asked=asked, by=by, why=why[:_LONGEST], now=now)


def stand(db: Db, site: str, way: Literal["batch", "agent"]) -> bool:
    """Reserve the name of a site for one kind of site; return whether that succeeded.

    The first keeps the name: jobs of the one must not be taken for jobs of the other.
    """
    if not db.value("site_way", name=site):
        db.run("site_stand", name=site, way=way)
    return bool(db.value("site_way", name=site) == way)


def begin(db: Db, sites: Sequence[str]) -> None:
    """Begin with the sites that have files: names are free again whose owner is gone.

    Jobs at other sites are marked as unattended.
    """
    db.run("site_release", files=text.dump(list(sites)))
    db.run("job_stranded", marks=text.dump([queue_mark(site) for site in sites]))


def intend(
    db: Db, site: str, batch: str, order: BatchOrder, works: Sequence[ArrayTask], now: float
) -> Submission:
    """Write down what is about to be submitted."""
    row = int(
        db.value(
            "submission_add", key=order.key, site=site, batch=batch, body=_body(order), now=now
        )
    )
    rows = [(row, one.place, one.job or None, one.attempt, one.pilot or None) for one in works]
    db.run("submitted_add", rows=text.dump(rows))
    by_place = {one.place: one for one in works}
    return Submission(row, order.key, batch, order, works=by_place, created=now)


def renew(db: Db, one: Submission, order: BatchOrder, now: float) -> None:
    """Write down that a submission is retried under another key, and that this one is over."""
    db.run("submission_renew", id=one.id, key=order.key, body=_body(order))
    db.run("submission_former", id=one.id, key=one.key, body=_body(one.order), now=now)


def know(db: Db, one: int, given: str) -> None:
    """Write down the id that the batch system gave."""
    db.run("submission_know", id=one, number=given)


def note(db: Db, one: int, words: str) -> None:
    """Write down the last word about a submission."""
    db.run("submission_note", id=one, reason=words)


def close(db: Db, ended: Iterable[tuple[int, int]], now: float) -> None:
    """Write down that works are over, and submissions with them; each is (submission, place)."""
    rows = text.dump(list(ended))
    db.run("submitted_over", rows=rows)
    db.run("submission_over", rows=rows, now=now)


def closed(db: Db, keys: Sequence[str]) -> list[str]:
    """Return which of these submissions are over."""
    return [key for (key,) in db.rows("submission_closed", keys=text.dump(keys))]


def load(db: Db, site: str) -> list[Submission]:
    """Read the submissions of a site that are not over."""
    found: dict[int, Submission] = {}
    for row, key, batch, body, state, given, tries, made in db.rows("submission_live", site=site):
        known = state == "known"
        found[row] = Submission(
            row, key, batch, _order.decode(body), known, given, tries, created=made, sent=True
        )
    for row, place, job, attempt, pilot in db.rows("submitted_out", site=site):
        found[row].works[place] = ArrayTask(place, job or 0, attempt or 0, pilot or 0)
    return list(found.values())


def _body(order: BatchOrder) -> str:
    return msgspec.json.encode(order).decode()
