"""Silent sites: they are queried, and cancelled attempts there are given up after a time.

Silence counts only while we listen: a lost broker says nothing of sites.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Awaitable, Callable

import anyio
import msgspec

from pilotage.base import text, units
from pilotage.edge import cancel, message, pilots, records
from pilotage.edge.message import HubIdentity
from pilotage.edge.records import RemoteAttempt
from pilotage.edge.statuses import StepEvents
from pilotage.store import Db

#: Attempts that are read together, and those that one query names.
_MOST = 10_000
_KEYS = 1000


class SilenceLimits(msgspec.Struct, frozen=True):
    """Seconds without a status until a site is asked, and until it counts as silent."""

    ask: float
    silence: float

    @property
    def look(self) -> float:
        """How often to look."""
        return min(30.0, max(0.1, self.ask / 4))


async def while_heard(
    trouble: Callable[[], str], now: Callable[[], float], patience: SilenceLimits,
    look: Callable[[float], Awaitable[None]],
) -> None:  # fmt: skip
    """Check repeatedly while sites can be heard; `look` gets the time since when they can."""
    since: float | None = None
    while True:
        if trouble():
            since = None
        elif since is None:
            since = now()
        else:
            await look(since)
        await anyio.sleep(patience.look)


def ask(
    db: Db,
    address: HubIdentity,
    patience: SilenceLimits,
    now: float,
    reached: Callable[[str], bool],
) -> int:
    """Query sites about attempts without a status for too long; return how many.

    Those that are to be cancelled are cancelled once more: the first message may be lost. `reached`
    says whether a site can be asked now.
    """
    found = db.rows("edge_attempts_quiet", before=now - patience.ask, most=_MOST)
    rows = [row for row in found if reached(row[2])]
    for (site, stopping), some in itertools.groupby(rows, key=operator.itemgetter(2, 3)):
        keys = [row[4] for row in some]
        for at in range(0, len(keys), _KEYS):
            verb = "cancel" if stopping else "query"
            topic, body = message.control(verb, site, keys[at : at + _KEYS], address)
            records.put(db, topic, body)
    if rows:
        db.run("edge_attempts_asked", rows=text.dump([row[:2] for row in rows]), now=now)
    return len(rows)


def give_up(
    db: Db, patience: SilenceLimits, since: float, now: float, listened: Callable[[str], bool],
    steps: StepEvents | None = None,
) -> list[RemoteAttempt]:  # fmt: skip
    """Note that sites are silent; return attempts of jobs to be cancelled that are given up.

    `since` is when we began to listen to those sites that were `listened` to; `steps` may run
    elsewhere.
    """
    before = now - patience.silence
    if since > before:
        return []
    ended = []
    for job, number, site, stopping, last in db.rows(
        "edge_attempts_silent", before=before, most=_MOST
    ):
        if not listened(site):
            continue
        reason = f"{site} has been silent for {units.for_people(now - last)}"
        attempt = records.get(db, job, number)
        if stopping and attempt is not None:
            given_up = cancel.give_up(db, attempt, reason, now)
            if given_up.pilot:
                pilots.over(db, given_up, now)
            else:
                ended.append(given_up)
        else:
            records.say(db, job, number, reason)
            if steps is not None and job:
                steps.silent(db, job, reason, now)
    if steps is not None:
        steps.strand(db, before, now)
    return ended
