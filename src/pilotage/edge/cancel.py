"""Cancellation of attempts at sites, repeated until the site confirms."""

from __future__ import annotations

from pilotage.edge import message, records
from pilotage.edge.message import HubIdentity
from pilotage.edge.records import RemoteAttempt, RemoteEnd
from pilotage.store import Db

#: How often a site may know nothing of an attempt before that is believed, and the first pause.
_UNKNOWN = 4
_SOON_S = 0.5
#: The code of an attempt that counts as cancelled though its site did not say so.
UNHEARD = "unheard"


def cancel(db: Db, attempt: RemoteAttempt, words: str, address: HubIdentity, now: float) -> bool:
    """Cancel an attempt; return whether that ends it at once, since it was never sent."""
    if attempt.sent is None and attempt.heard is None and _refused(db, attempt):
        # If it is on the way just now, `crossed` finds that out.
        _over(db, attempt, "it was never sent", now)
        return True
    _tell(db, attempt, address, words, now)
    return False


def unknown(db: Db, attempt: RemoteAttempt, address: HubIdentity, now: float) -> bool:
    """Handle a cancelled attempt that its site does not know; return whether that ends it.

    The message of the job may still arrive: so the site is asked again before it is believed.
    """
    if attempt.heard is not None or attempt.cancel > _UNKNOWN:
        _over(db, attempt, f"{attempt.site} knows nothing of it", now)
        return True
    _tell(db, attempt, address, "", now + _SOON_S * 2.0**attempt.cancel)
    return False


def crossed(db: Db, job: int, number: int, address: HubIdentity, now: float) -> None:
    """Cancel a job at its site that was cancelled here while its message was being sent."""
    attempt = records.get(db, job, number)
    if attempt is not None and attempt.heard is None and (attempt.cancel or attempt.over):
        _tell(db, attempt, address, "", now)


def revived(db: Db, attempt: RemoteAttempt, address: HubIdentity, now: float) -> None:
    """Cancel an attempt that its site continues though it was given up here."""
    if attempt.code == UNHEARD:
        _tell(db, attempt, address, "", now)


def give_up(db: Db, attempt: RemoteAttempt, reason: str, now: float) -> RemoteAttempt:
    """End an attempt that is to be cancelled, though its site says nothing."""
    return _over(db, attempt, reason, now)


def _refused(db: Db, attempt: RemoteAttempt) -> bool:
    """Return whether the broker has refused the message of an attempt, so that no site has it."""
    found = db.value("edge_job_refused", job=attempt.job, number=attempt.number)
    return found is not None


def _tell(db: Db, attempt: RemoteAttempt, address: HubIdentity, words: str, when: float) -> None:
    topic, body = message.control("cancel", attempt.site, [attempt.key], address, words)
    records.put(db, topic, body, (attempt.job, attempt.number), after=when)
    db.run("edge_attempt_cancel", job=attempt.job, number=attempt.number, when=when)


def _over(db: Db, attempt: RemoteAttempt, reason: str, now: float) -> RemoteAttempt:
    records.drop_job(db, attempt.job, attempt.number)
    return records.end(db, attempt, RemoteEnd("cancelled", reason, "infrastructure", UNHEARD), now)
