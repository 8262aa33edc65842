"""Expire silent leases, reserve room for large jobs, apply requested drains."""

from __future__ import annotations

import functools
import logging

import anyio
import msgspec

from pilotage.base import text
from pilotage.match import turn
from pilotage.match.cluster import QUEUE
from pilotage.match.queue import JobQueue
from pilotage.match.share import UsageRow
from pilotage.match.turn import TurnRecords
from pilotage.pilot.model import PilotState
from pilotage.pilot.table import OVER, Pilot, PilotTable
from pilotage.project.settings import Match
from pilotage.store import Db

_log = logging.getLogger("pilotage.pilot")
_ROUND_S = 1.0
#: Rounds between two records of usage and samples.
_WRITE = 5
_DAY_S = 86400.0
#: If this number and this share of all pilots are silent at once, the network is at fault.
MANY = 10
SHARE = 0.3
#: How many leases such a fault may last before what they held is given up.
_PATIENCE = 3.0
_MASS = "many pilots are silent"
#: Memory use is rounded to this number of bytes.
_ROUGH = 16 << 20


class LatePilots(msgspec.Struct, frozen=True):
    """Pilots whose report is overdue."""

    silent: list[Pilot]
    #: Those that were told to leave and have not.
    stubborn: list[Pilot]
    #: Why leases are kept although many pilots are silent; empty if they are not.
    mass: str


class LeaseMonitor:
    """Expires leases, reserves room, preempts, and applies requested drains, once a second."""

    def __init__(
        self, queue: JobQueue, table: PilotTable, settings: Match, lease: float, failing_node: str
    ) -> None:
        """Take the lease in seconds, and the prefix of alarms about nodes where payloads fail."""
        self._queue = queue
        self._failing_node = failing_node
        self._table = table
        self._preempt = settings.preempt == "priority"
        self._lease = lease
        #: Alarms that the log has.
        self._alarms: set[str] = set()
        self._round = 0

    async def run(self) -> None:
        """Check once a second until cancelled."""
        await self._queue.do(_load_usage)
        while True:
            await anyio.sleep(_ROUND_S)
            await self.go_round()

    async def go_round(self) -> None:
        """Check everything once."""
        self._round += 1
        # Chosen before: a turn that could not be written must do the same once more.
        await self._queue.do(functools.partial(self._look, self._late()))

    def _look(self, late: LatePilots, ledger: TurnRecords, db: Db, now: float) -> None:
        self._part(late, ledger, db, now)
        for number, asked in db.rows("pilot_asked"):
            self._obey(ledger, db, number, asked, now)
        self._table.drain_sites(ledger, {row[0] for row in db.rows("site_drains")})
        for (number,) in db.rows("pilot_revoked"):
            pilot = self._table.known(db, number)
            self._table.change(ledger, db, pilot, PilotState.DOWN, "its token was revoked", now)
        matcher = ledger.matcher
        turn.keep_room(matcher, now)
        if self._preempt:
            for place, lease in turn.preempt(matcher, now):
                ledger.stop(place, lease, "preempted by a job of higher priority", now)
        if self._round % _WRITE == 0:
            _note_begun(ledger, db, now)
            turn.charge_running(matcher, now)
            ledger.tidy()
            self._write(ledger, db, now)

    # -- silent pilots ---------------------------------------------------------------------------

    def _late(self) -> LatePilots:
        """Find pilots that are silent for too long, or have not left after a request."""
        tick = self._table.tick()
        # Listed at once: a turn under way may take one out.
        alive = [one for one in list(self._table.pilots.values()) if one.state not in OVER]
        silent = [one for one in alive if one.deadline < tick]
        words = ""
        if len(silent) >= MANY and len(silent) >= SHARE * len(alive):
            words = (
                f"{len(silent)} of {len(alive)} pilots have not reported for {self._lease:g} s: "
                "their jobs are not restarted before they return or much later"
            )
            silent = [one for one in silent if one.deadline < tick - _PATIENCE * self._lease]
        return LatePilots(silent, [one for one in alive if 0 < one.bye < tick], words)

    def _part(self, late: LatePilots, ledger: TurnRecords, db: Db, now: float) -> None:
        """Expire the leases of silent pilots, unless the network is at fault."""
        if late.mass:
            self._raise(db, _MASS, late.mass, now)
        else:
            self._clear(db, _MASS)
        words = f"its pilot did not report for {self._lease:g} s"
        for pilot in late.silent:
            _log.warning("pilot %d at %s is lost: %d jobs are queued again", pilot.number,
                         pilot.site, len(pilot.held))  # fmt: skip
            self._table.change(ledger, db, pilot, PilotState.LOST, words, now)
        for pilot in late.stubborn:
            self._table.change(
                ledger, db, pilot, PilotState.DOWN, "it did not leave after a request", now
            )

    def _obey(self, ledger: TurnRecords, db: Db, number: int, asked: str, now: float) -> None:
        """Apply a drain or stop that a user requested."""
        pilot = self._table.pilots.get(number)
        db.run("pilot_answer", id=number)
        if pilot is None:
            return
        self._table.change(
            ledger, db, pilot, PilotState.DRAINING, f"asked to {asked} by a person", now
        )
        if asked == "stop" and pilot.place is not None:
            pilot.bye = self._table.tick() + self._lease
            for lease in pilot.place.leases.values():
                ledger.stop(pilot.place, lease, "its pilot was stopped by a person", now)
        ledger.unpark(number)

    # -- what people see -------------------------------------------------------------------------

    def _write(self, ledger: TurnRecords, db: Db, now: float) -> None:
        shares = ledger.matcher.shares
        rows = [[one.owner, one.value, one.time, one.total] for one in shares.dump(now)]
        if rows:
            db.run("usage_put", rows=text.dump(rows))
        self._show_nodes(ledger, db, now)
        self._show_reserved(ledger, db)
        sites: dict[str, list[int]] = {}
        seen = []
        for place in ledger.matcher.places.values():
            used = max(0, place.cpus - max(0, place.free_cpus))
            # A batch queue has no cores of its own: those that its jobs have are all there are.
            one, cpus = (0, used) if place.attributes.get(QUEUE) else (1, place.cpus)
            for index, count in enumerate((one, cpus, used, len(place.leases))):
                sites.setdefault(place.site, [0, 0, 0, 0])[index] += count
            pilot = self._table.pilots.get(place.number)
            shown = (
                round(pilot.seen if pilot else now, -1), len(place.leases), used,
                *_measured(pilot),
            )  # fmt: skip
            if pilot is None or pilot.shown != shown:
                seen.append((place.number, pilot.seen if pilot else now, *shown[1:]))
            if pilot is not None:
                pilot.shown = shown
        if seen:
            db.run("pilot_seen", rows=text.dump(seen))
        if sites:
            pictures = [[site, *counts] for site, counts in sites.items()]
            db.run("sample_put", now=now, rows=text.dump(pictures))
        db.run("sample_purge", before=now - _DAY_S)

    def _show_nodes(self, ledger: TurnRecords, db: Db, now: float) -> None:
        """Update the alarms of nodes where payloads fail."""
        condemned = {f"{self._failing_node}{node}" for node in ledger.guard.condemned()}
        for name in condemned:
            self._raise(
                db, name, ledger.guard.verdict(name.removeprefix(self._failing_node), now), now
            )
        for name, _, _ in db.rows("alarm_all"):
            if name.startswith(self._failing_node) and name not in condemned:
                self._clear(db, name)

    def _show_reserved(self, ledger: TurnRecords, db: Db) -> None:
        """Store the reservations of pilots for jobs."""
        kept = [
            (place.number, place.reserved.bucket.first[0], round(place.reserved.at))
            for place in ledger.matcher.places.values()
            if place.reserved and place.reserved.bucket
        ]
        if sorted(kept) != db.rows("reserved_all"):
            db.run("reserved_clear")
            db.run("reserved_put", rows=text.dump(kept))

    def _raise(self, db: Db, name: str, words: str, now: float) -> None:
        if name not in self._alarms:
            _log.warning("%s: %s", name, words)
        self._alarms.add(name)
        db.run("alarm_put", name=name, words=words, now=now)

    def _clear(self, db: Db, name: str) -> None:
        self._alarms.discard(name)
        db.run("alarm_drop", name=name)


def _measured(pilot: Pilot | None) -> tuple[float | None, int | None]:
    """Return how busy the cores are that payloads have, and how much memory they use."""
    if pilot is None:
        return None, None
    # Roughly: what changes a little is not worth a line in the store.
    busy, resident = pilot.gauge.busy, pilot.gauge.resident
    return (
        None if busy is None else round(20 * busy) / 20,
        None if resident is None else round(resident / _ROUGH) * _ROUGH,
    )


def _note_begun(ledger: TurnRecords, db: Db, now: float) -> None:
    """Note which jobs at sites have begun to run: from then on their owners are charged."""
    for job, attempt in db.rows("site_running"):
        place = ledger.holder.get(job)
        lease = place.leases.get(job) if place else None
        if lease is not None and lease.attempt == attempt and not lease.began:
            lease.began = now


def _load_usage(ledger: TurnRecords, db: Db, _now: float) -> None:
    ledger.matcher.shares.load(UsageRow(*row) for row in db.rows("usage_all"))
    db.run("alarm_clear")
    db.run("reserved_clear")
