"""A message that was refused is kept once, and whoever sent it hears why."""

from __future__ import annotations

import hashlib

from pilotage.agent import accept, pilots, records, tell
from pilotage.agent.model import Arrival, Refusal, Refused, back
from pilotage.agent.settings import Settings
from pilotage.bus import model as bus
from pilotage.bus import wire
from pilotage.store import Db

#: So much is kept of a message that was refused.
_MOST_KEPT = 4096
_LONGEST = 10_000


def refuse(db: Db, one: Arrival, why: Refused, settings: Settings, now: float) -> None:
    """Keep a message, tell who watches over the site, and who sent it."""
    digest = records.digest(one.user, one.body)
    # A user of the broker who has the name of a hub is answered by the broker.
    to = "" if accept.posing(one.user, settings) else one.user
    reason = why.reason[:_LONGEST]
    kept = pilots.secretless(one.body)[:_MOST_KEPT]
    buried = Refusal(digest, now, one.user, one.topic, why.code, reason, len(one.body), kept, 1)
    count = records.bury(db, buried)
    if count == 1:
        told = _refusal(one, why, settings, now)
        records.send(db, to, settings.refused_topic, wire.encode(told), now)
    # One that comes anew asks anew; the same delivery once more does not.
    if why.job is not None and (count == 1 or not one.again):
        _answer(db, to, why, settings, now)


def _answer(db: Db, user: str, why: Refused, settings: Settings, now: float) -> None:
    job = why.job
    if job is None:
        return
    known = back(job)
    if known.reply and not accept.may_reply(known.reply, settings):
        known = back(bus.Job(site=job.site, application=job.application, speech=job.speech))
    status = bus.Status(
        site=settings.site, job=0, key=job.key, job_id=job.job_id, argo_job_id=job.argo_job_id,
        seq=1, state="rejected", step="accept", reason=_reason(why), time=now,
    )  # fmt: skip
    body = tell.body(status, job.speech, lambda: job, now)
    records.send(db, user, tell.topic(known, settings), body, now)


def _refusal(one: Arrival, why: Refused, settings: Settings, now: float) -> bus.Refusal:
    job = why.job
    return bus.Refusal(
        site=settings.site, time=now, user=one.user, topic=one.topic, key=job.key if job else "",
        job_id=job.job_id if job else 0, argo_job_id=job.argo_job_id if job else 0,
        reason=_reason(why), sha256=hashlib.sha256(one.body).hexdigest(), size=len(one.body),
    )  # fmt: skip


def _reason(why: Refused) -> bus.Reason:
    return bus.Reason(kind=why.kind, code=why.code, text=why.reason[:_LONGEST])
