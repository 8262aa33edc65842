"""The table of pilots: their states, attempts that each holds, and what they use."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from pilotage.base import errors, text
from pilotage.job.model import JobSpec
from pilotage.job.retry import AttemptEnd
from pilotage.match.place import Place
from pilotage.match.queue import JobQueue
from pilotage.match.submission import FOLDER, ONLY_APPLICATIONS
from pilotage.match.turn import TurnRecords
from pilotage.pilot.messages import Used
from pilotage.pilot.model import NodeFacts, PilotState, Project, Templates
from pilotage.store import Db

#: Seconds after which a measurement counts half for how things are now.
_HALF_LIFE_S = 60.0
#: Core-seconds that must have been measured before they say anything.
_LEAST = 2.0
#: Seconds by which news may be late.
_LATE_S = 60.0


class PilotUsage:
    """Usage that a pilot reports, and how busy its cores are now."""

    __slots__ = ("_recent", "_told", "_when", "had", "resident", "used")

    def __init__(self, now: float) -> None:
        #: Core-seconds that payloads have used and had since it came.
        self.used = 0.0
        self.had = 0.0
        #: Bytes of memory of payloads; nothing if not measured.
        self.resident: int | None = None
        self._told = (0.0, 0.0)
        self._when = now
        self._recent = (0.0, 0.0)

    @property
    def busy(self) -> float | None:
        """Share of their cores that payloads use, from 0 to 1; nothing if unknown."""
        used, had = self._recent
        return used / had if had >= _LEAST else None

    def hear(self, told: Used, cpus: int, memory: int, now: float) -> None:
        """Add a report; core-seconds are bounded by the time that has passed."""
        used, had = told[0] - self._told[0], told[1] - self._told[1]
        self._told = (told[0], told[1])
        elapsed = max(0.0, now - self._when)
        self._when = now
        most = cpus * (elapsed + _LATE_S)
        if had > most:
            # As after a restart of the hub: the ratio is right, the duration is not.
            used, had = used * most / had, most
        had = max(0.0, had)
        used = min(max(0.0, used), had)
        kept = 0.5 ** (elapsed / _HALF_LIFE_S)
        self._recent = (self._recent[0] * kept + used, self._recent[1] * kept + had)
        self.used += used
        self.had += had
        self.resident = min(told[2], memory) if memory else told[2]


def place(number: int, site: str, pool: str, facts: NodeFacts, until: float = math.inf) -> Place:
    """Describe a pilot to the matchmaker; site and pool are those of its token."""
    return Place(
        number, site, attributes(facts, site, pool), cpus=facts.cpus, memory=facts.memory,
        gpus=len(facts.gpus), disk=facts.disk, until=until,
    )  # fmt: skip


def attributes(facts: NodeFacts, site: str, pool: str) -> dict[str, Any]:
    """Return what requirements may ask for; a node cannot say of itself what it is not."""
    return {
        **facts.attributes,
        "host": facts.host, "os": facts.os, "arch": facts.arch, "release": facts.release,
        "python_version": facts.python_version, "sandboxes": list(facts.sandboxes),
        "gpu_names": [one.name for one in facts.gpus], "batch": facts.batch,
        "cpus": facts.cpus, "memory": facts.memory, "disk": facts.disk, "gpus": len(facts.gpus),
        "site": site, "pool": pool, FOLDER: facts.project != Project.HIDDEN,
        ONLY_APPLICATIONS: False,
    }  # fmt: skip


def end(facts: NodeFacts, enrolled: float) -> float:
    """Return when the node is taken away."""
    return math.inf if facts.lifetime is None else enrolled + facts.lifetime


#: States in which a pilot holds nothing and gets nothing.
OVER = frozenset({PilotState.DOWN, PilotState.FAILED, PilotState.LOST})
_ENDS = frozenset({PilotState.DRAINING, PilotState.DOWN, PilotState.FAILED, PilotState.LOST})
#: Which states may follow which; a pilot that left or failed its checks does not return.
_FOLLOWS: dict[PilotState, frozenset[PilotState]] = {
    PilotState.BOOTING: _ENDS | {PilotState.AVAILABLE},
    PilotState.AVAILABLE: _ENDS,
    PilotState.DRAINING: _ENDS,
    PilotState.LOST: frozenset({PilotState.AVAILABLE, PilotState.DOWN}),
}


class PilotLink(Protocol):
    """The connection to a pilot, for answers."""

    def send(self, data: bytes) -> None:
        """Send an answer."""
        ...


class HeldAttempt(msgspec.Struct, gc=False):
    """An attempt that a pilot holds."""

    job: int
    attempt: int
    #: The number of its definition, and that itself.
    number: int
    spec: JobSpec | None
    rule: str
    #: Why it was asked to end; empty if it was not.
    stopping: str = ""

    @property
    def key(self) -> str:
        """The name of the attempt."""
        return f"{self.job}.{self.attempt}"


class Pilot:
    """One pilot."""

    __slots__ = (
        "asked", "backlog", "bye", "cut", "deadline", "digest", "done", "drained", "facts", "gauge",
        "held", "leaving", "line", "number", "open", "place", "pool", "reason", "seen", "shed",
        "shown", "site", "state", "timer", "until",
    )  # fmt: skip

    def __init__(
        self, number: int, site: str, pool: str, facts: NodeFacts, state: PilotState, digest: str
    ) -> None:
        self.number = number
        self.site = site
        self.pool = pool
        self.facts = facts
        self.state = state
        self.reason = ""
        self.digest = digest
        self.place: Place | None = None
        self.held: dict[int, HeldAttempt] = {}
        #: Jobs that it has done, as far as this process knows.
        self.done = 0
        #: Launches of definitions as they look on this node.
        self.cut: Templates = {}
        #: Its connection; nothing while it is not connected.
        self.line: PilotLink | None = None
        #: Its last question, how many have no answer yet, and when the last waits no longer.
        self.asked: object = None
        self.open = 0
        self.timer: asyncio.TimerHandle | None = None
        #: Launches that were too much for one message, by job.
        self.backlog: dict[int, bytes] = {}
        #: After this time, by the clock of the table, it counts as lost.
        self.deadline = math.inf
        self.seen = 0.0
        #: Whether a person had its site drained: it gets no work, and stays.
        self.drained = False
        #: When its node is taken away.
        self.until = end(facts, time.time())
        #: By when it must have left, by the clock of the table; 0 if it was not dismissed.
        self.bye = 0.0
        #: Whether its pool had it drain, and whether it knows that it leaves: no way back then.
        self.shed = False
        self.leaving = False
        #: What its payloads were measured to use.
        self.gauge = PilotUsage(time.time())
        #: What the store shows of it: when seen, jobs, cores, how busy these are, memory.
        self.shown: tuple[float | None, ...] = ()

    @property
    def callable(self) -> bool:
        """Whether it drains and its pool could have it back."""
        drains = self.state is PilotState.DRAINING and self.shed
        return drains and not self.leaving and not self.bye and self.line is not None

    def part(self) -> str:
        """Return why it is to leave, and note that it knows; empty if it is not to leave.

        A pilot that its pool drains need not know before its jobs are over.
        """
        if self.state is not PilotState.DRAINING or (self.shed and self.held and not self.leaving):
            return ""
        self.leaving = True
        return self.reason

    def holds(self, key: str) -> bool:
        """Return whether it holds an attempt."""
        job, _, attempt = key.partition(".")
        held = self.held.get(int(job)) if job.isdecimal() else None
        return held is not None and str(held.attempt) == attempt

    def unpark(self) -> None:
        """Forget that its question waits."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


@dataclass(eq=False)
class PilotTable:
    """All pilots by number; changes go to the store and to the matchmaker.

    It is empty until `load` has read the store.
    """

    _queue: JobQueue
    _lease: float
    #: The clock by which leases end.
    tick: Callable[[], float] = time.monotonic
    pilots: dict[int, Pilot] = field(default_factory=dict, init=False)

    def now(self) -> float:
        """Return what time it is by the clock of the queue."""
        return self._queue.now()

    def heard(self, pilot: Pilot) -> None:
        """Renew the lease of a pilot."""
        pilot.seen = time.time()
        pilot.deadline = self.tick() + self._lease

    async def load(self) -> None:
        """Read the pilots that were here before; each has a whole lease to come back."""
        await self._queue.do(self._load)

    def _load(self, ledger: TurnRecords, db: Db, now: float) -> None:
        for row in db.rows("pilot_alive"):
            pilot = self._restore(row)
            self.pilots[pilot.number] = pilot
            self._join(ledger, db, pilot)
        gone = AttemptEnd(ok=False, message="its pilot is gone", lost=True)
        for mark in [one for one in ledger.orphans if one.startswith("pilot:")]:
            # Its pilot has ended, and no other can hold it.
            ledger.lose(db, int(mark.partition(":")[2]), gone, now)

    def _restore(self, row: tuple[Any, ...]) -> Pilot:
        number, _, site, pool, state, reason, digest, facts = row[:8]
        pilot = Pilot(
            number,
            site,
            pool,
            msgspec.json.decode(facts, type=NodeFacts),
            PilotState(state),
            digest,
        )
        pilot.reason = reason
        pilot.deadline = self.tick() + self._lease
        enrolled, pilot.seen = row[8:10]
        pilot.shed = row[16] == "pool"
        pilot.until = end(pilot.facts, enrolled)
        return pilot

    def _join(self, ledger: TurnRecords, db: Db, pilot: Pilot) -> None:
        """Add a pilot to the matchmaker, with the attempts that it holds already."""
        # It is there already if this was done in a turn that could not be written.
        pilot.place = ledger.matcher.places.get(pilot.number)
        if pilot.place is None:
            pilot.place = place(pilot.number, pilot.site, pilot.pool, pilot.facts, pilot.until)
            ledger.join(pilot.place)
        pilot.drained = bool(db.value("site_asked", name=pilot.site))
        for lease in pilot.place.leases.values():
            spec = ledger.specs.get(db, lease.spec)
            rule = db.value("job_rule", id=lease.job) or ""
            pilot.held[lease.job] = HeldAttempt(lease.job, lease.attempt, lease.spec, spec, rule)

    def add(
        self, number: int, site: str, pool: str, facts: NodeFacts, state: PilotState, digest: str
    ) -> Pilot:
        """Add a new pilot."""
        pilot = Pilot(number, site, pool, facts, state, digest)
        self.pilots[number] = pilot
        return pilot

    async def find(self, number: int) -> Pilot:
        """Find a pilot, also one that was lost before."""
        if number in self.pilots:
            return self.pilots[number]
        found: list[Pilot] = []

        def read(_ledger: TurnRecords, db: Db, _now: float) -> None:
            row = db.row("pilot_get", id=number)
            if row is None:
                message = f"there is no pilot {number}"
                raise errors.NotFound(message, hint="enrol it again")
            found.append(self._restore(row))

        await self._queue.do(read)
        return self.pilots.get(number, found[-1])

    def known(self, db: Db, number: int) -> Pilot:
        """Find a pilot that is in the store, within a turn."""
        return self.pilots.get(number) or self._restore(db.rows("pilot_get", id=number)[0])

    # -- changes ---------------------------------------------------------------------------------

    async def move(self, pilot: Pilot, state: PilotState, reason: str) -> None:
        """Change the state of a pilot, durably, and what it gets with it."""

        def change(ledger: TurnRecords, db: Db, now: float) -> None:
            self.change(ledger, db, pilot, state, reason, now)

        await self._queue.do(change)

    async def describe(self, pilot: Pilot, facts: NodeFacts) -> None:
        """Note what a pilot has found out about its node before it gets work."""
        body = text.dump(facts)

        def change(_ledger: TurnRecords, db: Db, _now: float) -> None:
            db.run("pilot_describe", id=pilot.number, facts=body)

        await self._queue.do(change)
        pilot.facts = facts

    def change(
        self, ledger: TurnRecords, db: Db, pilot: Pilot, state: PilotState, reason: str, now: float
    ) -> None:
        """Change the state of a pilot within a turn, unless what it is now rules that out.

        The store says what it is: a turn that could not be written has left its traces in memory.
        """
        before = PilotState(db.value("pilot_state", id=pilot.number))
        if state is PilotState.LOST and before is PilotState.DRAINING and not pilot.held:
            # It was to leave, and has: its good-bye was lost, as when the hub was down.
            state, reason = PilotState.DOWN, pilot.reason or reason
        if state not in _FOLLOWS.get(before, frozenset()):
            pilot.state = before
            return
        db.run(
            "pilot_move", id=pilot.number, state=state, reason=reason, now=pilot.seen or now,
            ended=now if state in OVER else None,
        )  # fmt: skip
        pilot.state, pilot.reason, pilot.shed = state, reason, False
        if state in OVER:
            db.run("pilot_done", id=pilot.number, done=pilot.done)
            self._end(ledger, db, pilot, now)
        elif pilot.place is None:
            self._join(ledger, db, pilot)
        _open(pilot)

    def _end(self, ledger: TurnRecords, db: Db, pilot: Pilot, now: float) -> None:
        lost = pilot.state is PilotState.LOST
        words = pilot.reason or f"its pilot is {pilot.state}"
        ledger.lose(
            db, pilot.number, AttemptEnd(ok=False, message=words, lost=lost, stopped=not lost), now
        )
        pilot.place, pilot.held = None, {}
        # A pilot that comes back is found in the store.
        self.pilots.pop(pilot.number, None)

    def shed(
        self, ledger: TurnRecords, db: Db, pilot: Pilot, reason: str, now: float
    ) -> None:  # fmt: skip
        """Drain a pilot within a turn because its pool has too many; it may be recalled."""
        if PilotState(db.value("pilot_state", id=pilot.number)) is PilotState.DRAINING:
            return
        self.change(ledger, db, pilot, PilotState.DRAINING, reason, now)
        db.run("pilot_shed", id=pilot.number)
        pilot.shed = pilot.state is PilotState.DRAINING

    def recall(self, db: Db, pilot: Pilot) -> bool:
        """Give a pilot work again within a turn that its pool had drain, if it still can have it.

        One that hears at this moment that it leaves says so, and drains once more.
        """
        if not pilot.callable or db.value("pilot_recall", id=pilot.number, reason="") is None:
            return False
        pilot.state, pilot.reason, pilot.shed = PilotState.AVAILABLE, "", False
        _open(pilot)
        return True

    def drain(self, pilot: Pilot, reason: str) -> None:
        """Drain a pilot: it finishes its jobs and gets no more."""
        self._queue.change(
            lambda ledger, db, now: self.change(ledger, db, pilot, PilotState.DRAINING, reason, now)
        )

    def drain_sites(self, ledger: TurnRecords, sites: Collection[str]) -> None:
        """Drain the pilots of some sites, and resume those of all others."""
        # Listed at once: others may come meanwhile.
        for pilot in list(self.pilots.values()):
            if pilot.drained != (pilot.site in sites):
                pilot.drained = not pilot.drained
                # It asks again at once.
                ledger.unpark(pilot.number)
                _open(pilot)

    async def take_back(self, pilot: Pilot) -> None:
        """Give a pilot work that is connected again, and know all that it was given before."""

        def change(ledger: TurnRecords, db: Db, now: float) -> None:
            # What it asked by its old connection would be answered there.
            ledger.unpark(pilot.number)
            state = db.value("pilot_state", id=pilot.number)
            if state == PilotState.LOST:
                self.change(ledger, db, pilot, PilotState.AVAILABLE, "it came back", now)
            elif pilot.place is None and state in {PilotState.AVAILABLE, PilotState.DRAINING}:
                self._join(ledger, db, pilot)
            _open(pilot)

        await self._queue.do(change)
        if pilot.state not in OVER:
            self.pilots[pilot.number] = pilot

    def close_down(self, pilot: Pilot) -> None:
        """Give a pilot no work while it is not connected."""

        def change(ledger: TurnRecords, _db: Db, _now: float) -> None:
            if pilot.line is None:
                ledger.unpark(pilot.number)
                _open(pilot)

        self._queue.change(change)


def _open(pilot: Pilot) -> None:
    if pilot.place is not None:
        ready = pilot.state is PilotState.AVAILABLE and pilot.line is not None
        pilot.place.taking = ready and not pilot.drained
