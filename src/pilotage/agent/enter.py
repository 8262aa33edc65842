"""Messages enter the store: all that came together in one transaction, each job once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pilotage.agent import accept, caps, pilots, records
from pilotage.agent.model import Accepted, Arrival, Refused
from pilotage.agent.refuse import refuse
from pilotage.agent.settings import Settings
from pilotage.base import text
from pilotage.edge.order import PILOT
from pilotage.job import records as jobs
from pilotage.job.model import JobSpec, State
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
    new = [(one, one.verdict) for one in arrivals if isinstance(one.verdict, Accepted)]
    door = _Door(db, records.known(db, [one.key.digits for _, one in new]), settings, now)
    digests = [records.digest(one.user, one.body) for one, verdict in new if verdict.job.key]
    door.refused = records.refusals(db, digests) if digests else {}
    for one in arrivals:
        why = door.let_in(one, one.verdict) if isinstance(one.verdict, Accepted) else one.verdict
        if why is not None:
            refuse(db, one, why, settings, now)
            door.entered.refused += 1
    return door.entered


class _Door:
    """Lets jobs in within one transaction."""

    def __init__(
        self, db: Db, known: dict[str, tuple[int, str]], settings: Settings, now: float
    ) -> None:
        self._db = db
        self._known = known
        self._limits = settings.limits
        self._dialled = bool(settings.hub.url)
        self._now = now
        # What waits for room is older: only what it leaves is for those who come now.
        self._going, let = caps.settle(db, settings.limits, now)
        self._specs: dict[str, int] = {}
        #: By digest, code and reason with which a message with a key was refused before.
        self.refused: dict[str, tuple[str, str]] = {}
        self.entered = Entered(queued=bool(let))

    def let_in(self, one: Arrival, new: Accepted) -> Refused | None:
        """Make a job of a message, unless it is there; say why not if it cannot be."""
        if before := self._known.get(new.key.digits):
            return self._again(new, *before)
        if self.refused and (told := self.refused.get(records.digest(one.user, one.body))):
            return accept.repeated(new, *told)
        if new.most:
            live = records.live(self._db, one.user, new.job.application)
            if refused := accept.too_many(new, one.user, live):
                return refused
        self._known[new.key.digits] = (self._add(one.user, new), new.key.body)
        return None

    def _again(self, new: Accepted, before: int, sha256: str) -> Refused | None:
        if not before:
            return accept.forgotten(new)
        if sha256 != new.key.body:
            return accept.conflict(new, before)
        records.tell(self._db, before, self._now)
        self.entered.again += 1
        return None

    def _add(self, user: str, new: Accepted) -> int:
        group = (user, new.queue)
        waits = self._going.why_not(group, self._limits)
        if new.job.application == PILOT:
            # Whose turn it is depends on the pilots of all hubs.
            waits = pilots.WAITS
        if not waits:
            self._going.add(group)
            self.entered.queued = True
        self.entered.new += 1
        state = State.WAITING if waits else State.QUEUED
        spec = self._spec(new.spec)
        return records.accept(
            self._db, user, new, state, waits, self._now, spec, dialled=self._dialled
        )

    def _spec(self, spec: JobSpec) -> int:
        """Return the number of a definition; the jobs of a sender mostly share one."""
        body = text.dump(spec)
        found = self._specs.get(body)
        if found is None:
            found = self._specs[body] = jobs.intern(self._db, spec)
        return found
