"""Attempts that are to be called off: where they are is told, and says that it is done."""

from __future__ import annotations

from pilotage.flow import moves, records
from pilotage.flow.records import AttemptRow
from pilotage.hub.flows import edge, outbox
from pilotage.hub.flows.edge import Address
from pilotage.hub.flows.outbox import Word
from pilotage.job import machine
from pilotage.job import moves as job_moves
from pilotage.job import records as jobs
from pilotage.store import Db

MOST = 1000
#: So often a site may know nothing of a job before that is believed, and how long it is waited.
_UNKNOWN = 4
_SOON_S = 0.5
_WHY = "its workflow does not need it any more"


def call_off(db: Db, address: Address, now: float) -> int:
    """Tell all who have attempts that are called off; return how many."""
    found = records.called_off(db, MOST)
    for one in found:
        if one.way == "bus":
            _bus(db, one, address, now)
        elif one.way == "here" and one.job is not None:
            _here(db, one.job, now)
        db.run("flows_cancel_told", task=one.task, number=one.number)
    return len(found)


def _bus(db: Db, one: AttemptRow, address: Address, now: float) -> None:
    if outbox.never_sent(db, one.task, one.number):
        # If it is on the way just now, `sent` finds that out.
        outbox.drop(db, one.task, one.number)
        moves.cancelled(db, one.task, one.number, now, "it was never sent")
        return
    _tell(db, one, address, 0.0)


def _tell(db: Db, one: AttemptRow, address: Address, after: float) -> None:
    topic, body = edge.control("cancel", one.site, [one.key], address, _WHY)
    outbox.put(db, one.flow, "control", topic, body, task=one.task, number=one.number, after=after)


def _here(db: Db, number: int, now: float) -> None:
    job = jobs.get(db, number)
    if job.state not in machine.FINAL:
        job_moves.cancel(db, job, now=now, reason=_WHY)


def unknown(db: Db, one: AttemptRow, address: Address, now: float) -> None:
    """Take in that a site does not know what it is to call off.

    The message of the job may be behind: so it is told again, and only then believed.
    """
    if one.heard is not None or one.cancel > _UNKNOWN:
        outbox.drop(db, one.task, one.number)
        moves.cancelled(db, one.task, one.number, now, f"{one.site} knows nothing of it")
        return
    _tell(db, one, address, now + _SOON_S * 2.0**one.cancel)
    db.run("flows_cancel_told", task=one.task, number=one.number)


def crossed(db: Db, word: Word, now: float, *, address: Address) -> None:
    """Take in that a job was sent whose message was dropped meanwhile.

    Either its site was heard on it already, or it was called off.
    """
    one = records.attempt(db, word.task, word.number)
    if one is not None and one.cancel and one.heard is None:
        _tell(db, one, address, now)
