"""Pilots that are ordered at sites with an agent: attempts without a job, by the same messages.

An order is written once, with the secret of its pilot, and kept until the site has answered.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from pilotage.base import text
from pilotage.batch.pilot_request import PilotRequest
from pilotage.edge import cancel, message, records
from pilotage.edge.message import Handoff, HubIdentity
from pilotage.edge.order import PilotOrder
from pilotage.edge.records import RemoteAttempt
from pilotage.pilot.model import PilotState
from pilotage.store import Db

#: How long a pilot that has left may take until its batch job is over, in seconds.
_TIDY_S = 60.0
#: Pilots that are looked at together.
_MOST = 1000
#: Characters of the last line of a pilot's log in the reason.
_LONGEST = 300
_OFF = "cancelled before it was ordered"


class WantedPilot(msgspec.Struct, frozen=True):
    """A pilot that is wanted at a site, and was not ordered."""

    number: int
    pool: str
    site: str
    wish: PilotRequest
    #: Its status text so far.
    reason: str


def wanted(db: Db, sites: list[str], now: float) -> list[WantedPilot]:
    """List pilots to be ordered at some sites; end those that were cancelled before."""
    found = []
    for number, pool, site, body, asked, reason in db.rows(
        "edge_pilots_wanted", sites=text.dump(sites), most=_MOST
    ):
        if asked:
            db.run("pilot_never", id=number, state=PilotState.DOWN, reason=_OFF, now=now)
        else:
            wish = msgspec.json.decode(body, type=PilotRequest)
            found.append(WantedPilot(number, pool, site, wish, reason))
    return found


def order(db: Db, one: WantedPilot, asked: PilotOrder, address: HubIdentity, now: float) -> None:
    """Order a pilot once; raise `UsageError` for one that no site could accept."""
    key = address.key(message.attempt_key(0, one.number))
    body = message.pilot(one.wish, asked, site=one.site, key=key, reply=address.reply)
    records.add(db, (0, one.number), one.site, Handoff(), body, now)
    records.say(db, 0, one.number, f"on its way to {one.site}")


def say(db: Db, one: WantedPilot, words: str) -> None:
    """Record for users why a pilot is not ordered."""
    if words != one.reason:
        records.say(db, 0, one.number, words)


def refuse(db: Db, one: WantedPilot, words: str, now: float) -> None:
    """End a pilot that cannot be ordered."""
    db.run("pilot_never", id=one.number, state=PilotState.FAILED, reason=words, now=now)


def cancel_unwanted(db: Db, address: HubIdentity, now: float) -> None:
    """Cancel orders that are no longer wanted, and batch jobs that outlive their pilots."""
    for (number,) in db.rows("edge_pilots_unwanted", before=now - _TIDY_S, most=_MOST):
        attempt = records.get(db, 0, number)
        if attempt is not None and cancel.cancel(db, attempt, "not wanted", address, now):
            ended = records.get(db, 0, number)
            over(db, ended or attempt, now)


def hear(db: Db, one: RemoteAttempt, state: str, reason: str) -> None:
    """Record how far the order of a pilot is at its site."""
    ids = text.dump([one.number])
    match state:
        case "running" | "staging_out":
            db.run("pilot_queued", ids=ids, reason=f"its batch job runs at {one.site}")
        case "submitted":
            db.run("pilot_queued", ids=ids, reason=_words(f"waits at {one.site}", reason))
        case "waiting" | "queued" | "held":
            words = _words(f"{one.site} has it {state}", reason)
            db.run("pilot_say", ids=ids, reason=words)
        case _:
            words = _words(f"is being submitted at {one.site}", reason)
            db.run("pilot_say", ids=ids, reason=words)


def over(db: Db, one: RemoteAttempt, now: float, log: str = "") -> None:
    """Record that the batch job of a pilot is over, or never was; `log` is the end of its stderr.

    A pilot that had connected is ended by its lease, unless it has left by itself. A silent or
    unknown batch job is no reason to end it: the pilot itself is heard.
    """
    words = _end(one, _last(log))
    off = one.cancel or one.state == "cancelled"
    state = PilotState.DOWN if off else PilotState.FAILED
    never = db.value("pilot_never", id=one.number, state=state, reason=words, now=now)
    if never is None and one.code not in (records.FORGOTTEN, cancel.UNHEARD):
        db.run("pilot_end_add", pilot=one.number, words=words)


def _end(one: RemoteAttempt, line: str) -> str:
    """Return how the order of a pilot ended, with the last line that it wrote."""
    match one.state:
        case "rejected":
            return _words(f"{one.site} refused it", one.reason)
        case "cancelled":
            return one.reason or "cancelled"
        case "done":
            return _words(f"its program ended at {one.site}", line)
        case _:
            said = _words(one.reason, line)
            return _words(f"its batch job failed at {one.site}", said)


def _words(*parts: str) -> str:
    return ": ".join(part for part in parts if part)


def _last(stream: str) -> str:
    """Return the last line of what a pilot wrote."""
    try:
        told = base64.b64decode(stream, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""
    lines = told.strip().splitlines()
    return text.show(lines[-1][:_LONGEST]) if lines else ""
