"""Sites that say nothing of attempts are asked, and given up where a step may run elsewhere.

Silence counts only while we listen: a broker that is away says nothing of sites.
"""

from __future__ import annotations

import itertools
import operator

import msgspec

from pilotage import text, units
from pilotage.flow import definition, moves
from pilotage.flow.journal import note
from pilotage.hub.flows import edge, outbox
from pilotage.hub.flows.edge import Address
from pilotage.hub.flows.outbox import Word
from pilotage.store import Db

#: Attempts that are looked at together, and those that one question names.
_MOST = 10_000
_KEYS = 1000


class Patience(msgspec.Struct, frozen=True):
    """How long nothing may be heard, in seconds."""

    ask: float
    silence: float

    @property
    def look(self) -> float:
        """How often to look."""
        return min(30.0, max(0.1, self.ask / 4))


def ask(db: Db, address: Address, patience: Patience, now: float) -> int:
    """Ask sites about attempts that were not heard of for too long; return how many.

    Those that are called off are called off once more: the first call may be lost.
    """
    rows = db.rows("flows_quiet", before=now - patience.ask, most=_MOST)
    for (site, off), some in itertools.groupby(rows, key=operator.itemgetter(2, 3)):
        keys = [row[4] for row in some]
        verb = "cancel" if off else "query"
        for at in range(0, len(keys), _KEYS):
            topic, body = edge.control(verb, site, keys[at : at + _KEYS], address)
            outbox.put(db, 0, "control", topic, body)
    if rows:
        db.run("flows_asked", rows=text.dump([row[:2] for row in rows]), now=now)
    return len(rows)


def give_up(db: Db, patience: Patience, since: float, now: float) -> int:
    """Give attempts up at sites that were silent for too long; return how many.

    `since` is when we began to listen.
    """
    before = now - patience.silence
    if since > before:
        return 0
    count = 0
    for task, number, flow, site, cancel, last in db.rows(
        "flows_silent", before=before, most=_MOST
    ):
        reason = f"{site} has said nothing for {units.for_people(now - last)}"
        if cancel:
            outbox.drop(db, task, number)
            count += moves.cancelled(db, task, number, now, reason)
        elif _elsewhere(db, flow, task, site):
            outbox.drop(db, task, number)
            count += moves.fence(db, task, now, reason) is not None
        else:
            db.run("flows_say", task=task, number=number, reason=reason).fetchall()
    return count


def _elsewhere(db: Db, flow: int, task: int, site: str) -> bool:
    """Say whether a task may run at another site."""
    name = db.value("flows_step_of", task=task)
    step = definition.step(db, flow, name)
    return step.on_failure == "other_site" and (not step.sites or {*step.sites} != {site})


def unheard(db: Db, word: Word, now: float) -> None:
    """Say that nobody listens to what a message was for."""
    if word.kind != "job":
        return
    site = word.topic.removeprefix("job.")
    reason = f"no agent listens for the site {site}; it is tried again"
    found = db.row("flows_say", task=word.task, number=word.number, reason=reason)
    if found is not None:
        note(db, now, found[0], "waiting", reason, step=found[1], task=word.task,
             number=word.number)  # fmt: skip
