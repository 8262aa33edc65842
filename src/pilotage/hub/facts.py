"""Facts from the store that explanations need."""

from __future__ import annotations

from collections.abc import Iterable

from pilotage import text, units
from pilotage.event import records as events
from pilotage.hub import config
from pilotage.hub.config import Settings
from pilotage.job import records
from pilotage.job.model import Job, State
from pilotage.match import fit
from pilotage.match.explain import Facts
from pilotage.match.model import Offer
from pilotage.result import logs
from pilotage.store import Db

_OFFER = "offer"
_LONGEST = 200


def gather(db: Db, number: int, *, now: float, running: bool, free: Offer) -> Facts:
    """Read what there is to know of a job."""
    job = records.get(db, number)
    attempts = records.attempts(db, number)
    ahead = 0
    if job.state is State.QUEUED:
        ahead = int(db.value("job_ahead", priority=job.priority, id=number))
    return Facts(
        now=now,
        job=job,
        running=running,
        before=tuple((on, state or "") for on, state in db.rows("dependency_of", job=number)),
        ahead=ahead,
        holders=tuple(one for (one,) in db.rows("job_holding_limit", key=job.limit_key))
        if job.limit_key
        else (),
        offer=free,
        attempt=attempts[-1] if attempts else None,
        asked=db.value("job_asked_of", id=number) or "",
        last_words=_last_words(attempts[-1].dir) if attempts else "",
    )


def _last_words(folder: str) -> str:
    written = logs.read(logs.path(folder, "stderr"), 1)
    return text.show(written.decode("utf-8", "replace").strip())[:_LONGEST]


def reasons(found: Iterable[Job], free: Offer, now: float) -> dict[int, str]:
    """Say in short why queued jobs do not start, for a column of a table."""
    short: dict[int, str] = {}
    for job in found:
        if job.state is not State.QUEUED:
            continue
        why = list(fit.fit(job.spec.resources, free).reasons)
        if job.not_before > now and not job.reason:
            why.append(f"may start in {units.for_people(job.not_before - now)}")
        short[job.id] = "; ".join([*([job.reason] if job.reason else []), *why])
    return short


def hopeless(db: Db, offer: Offer) -> list[tuple[int, int, str]]:
    """List queued jobs that can never start: the first of each kind, how many, and why."""
    found = []
    for body, first, count in db.rows("job_queued_specs"):
        verdict = fit.fit(records.read_spec(body).resources, offer)
        if not verdict.ever:
            found.append((first, count, "; ".join(verdict.reasons)))
    return found


def note_offer(db: Db, offer: Offer) -> None:
    """Keep what the running process offers, so that other commands can explain with it."""
    with db.transaction():
        events.advance(db, _OFFER, text.dump([offer.cpus, offer.memory, offer.gpus]))


def free(db: Db, settings: Settings, *, running: bool) -> Offer:
    """Say what the place to run has, in all and free now."""
    offer = config.offer(settings)
    noted = events.cursor(db, _OFFER)
    if running and noted is not None:
        cpus, memory, gpus = text.load(noted)
        offer = Offer(offer.site, cpus, cpus, memory, memory, gpus, gpus)
    for row in db.rows("job_running"):
        spec = records.read_spec(db.value("spec_body", id=row[5]))
        offer = fit.carve(spec.resources, offer)
    return offer
