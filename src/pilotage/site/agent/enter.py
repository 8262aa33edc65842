"""Messages enter the store: all that came together in one transaction, each job once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pilotage.job.model import State
from pilotage.site.agent import accept, caps, records
from pilotage.site.agent.caps import Going
from pilotage.site.agent.model import Accepted, Arrival, Refused
from pilotage.site.agent.refuse import refuse
from pilotage.site.agent.settings import Settings
from pilotage.store import Db


class Entered(msgspec.Struct):
    """What became of messages."""

    new: int = 0
    #: Jobs that were there already.
    again: int = 0
    refused: int = 0
    #: Whether anything is queued that was not before.
    queued: bool = False


def enter(db: Db, arrivals: Sequence[Arrival], settings: Settings, now: float) -> Entered:
    """Make jobs of messages, or say why not."""
    # What waits for room is older: only what it leaves is for those who come now.
    going, let = caps.settle(db, settings.limits, now)
    keys = [one.verdict.key.digits for one in arrivals if isinstance(one.verdict, Accepted)]
    known = records.known(db, keys)
    entered = Entered(queued=bool(let))
    for one in arrivals:
        why = one.verdict
        if isinstance(why, Accepted):
            found = _one(db, one, why, known, going, settings, now, entered)
            if found is None:
                continue
            why = found
        refuse(db, one, why, settings, now)
        entered.refused += 1
    return entered


def _one(
    db: Db, one: Arrival, new: Accepted, known: dict[str, tuple[int, str]], going: Going,
    settings: Settings, now: float, entered: Entered,
) -> Refused | None:  # fmt: skip
    digits = new.key.digits
    if digits in known:
        before, sha256 = known[digits]
        if not before:
            return accept.forgotten(new)
        if sha256 != new.key.body:
            return accept.conflict(new, before)
        records.tell(db, before, now)
        entered.again += 1
        return None
    if new.most:
        live = records.live(db, one.user, new.job.application)
        if refused := accept.too_many(new, one.user, live):
            return refused
    group = (one.user, new.queue)
    waits = going.why_not(group, settings.limits)
    state = State.WAITING if waits else State.QUEUED
    number = records.accept(db, one.user, new, state, waits, now)
    known[digits] = (number, new.key.body)
    entered.new += 1
    if not waits:
        going.add(group)
        entered.queued = True
    return None
