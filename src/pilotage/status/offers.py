"""Offers from the store: this machine, pilots, batch queues and sites, with their use."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from pilotage.base import units
from pilotage.base.owner import me
from pilotage.batch.model import SiteSettings
from pilotage.batch.offer import place_of
from pilotage.edge import place as edge
from pilotage.edge import view
from pilotage.job import records
from pilotage.job.model import JobSpec, Resources
from pilotage.match.cluster import QUEUE
from pilotage.match.place import Offer, Place
from pilotage.match.prospect import BLOCKED, BOOTING, DRAINING, KEPT, LOST, SILENT, Offered, Offers
from pilotage.pilot import table
from pilotage.pilot.model import NodeFacts, PilotState
from pilotage.project import settings as config
from pilotage.project.settings import Settings
from pilotage.run.offer import LOCAL, here
from pilotage.store import Db

#: The prefix of the name of an alarm about a node on which payloads fail.
HOLE = "node gets no work: "
#: Seconds for which a lost pilot is shown.
_RECENT_S = 3600.0
#: The longest delay of reports on pilots in the store, in seconds.
_DELAY_S = 20.0
_HOLDER = re.compile(r"pilot:([0-9]{1,15})")
_COMING = frozenset[str]({PilotState.REQUESTED, PilotState.SUBMITTED})
_STATES: dict[str, str] = {
    PilotState.LOST: LOST,
    PilotState.BOOTING: BOOTING,
    PilotState.DRAINING: DRAINING,
}
_EDGES = {"draining": DRAINING, "silent": SILENT, "unknown": SILENT}
_FACTS = msgspec.json.Decoder(NodeFacts)


class Reserved(msgspec.Struct, frozen=True):
    """A pilot that is reserved for a job."""

    pilot: int
    job: int
    #: When there will be room.
    at: float


class OfferView(msgspec.Struct, frozen=True):
    """All offers, with reservations and use by owner."""

    offers: Offers
    #: Pilots that were asked for and have not come yet.
    coming: int
    #: Cores in use by owner.
    cores: dict[str, int]
    #: By job, the pilot that is reserved for it.
    reserved: dict[int, Reserved]


def read(db: Db, settings: Settings, *, now: float, running: bool, room: bool = True) -> OfferView:
    """Read all offers; without `room` as if nothing ran there."""
    rows = db.rows("offer_pilots", since=now - _RECENT_S)
    reserved = [Reserved(*row) for row in db.rows("reserved_all")] if running else []
    sites = db.rows("site_all")
    judge = _Judge(
        db, settings, {one.pilot: one.job for one in reserved}, _drained(sites), now,
        running=running,
    )  # fmt: skip
    found = [one for row in rows if (one := _offered(row, judge)) is not None]
    found += [one for row in sites if (one := _queue(row, judge)) is not None]
    numbers = {row[1]: row[0] for row in sites if row[10] == "agent"}
    found += _edges(db, numbers, judge, now, running=running)
    if not running:
        found.append(Offered(here(config.offer(settings))))
    cores = _take(db, {one.place.number: one.place for one in found}) if room else {}
    coming = sum(row[3] in _COMING for row in rows)
    return OfferView(Offers(found, now), coming, cores, {one.job: one for one in reserved})


class _Judge:
    """Says which pilots get no work now, and why."""

    def __init__(
        self, db: Db, settings: Settings, kept: dict[int, int], drained: dict[str, str],
        now: float, *, running: bool,
    ) -> None:  # fmt: skip
        alarms = db.rows("alarm_all") if running else []
        self._holes = {
            name.removeprefix(HOLE): words for name, _, words in alarms if name.startswith(HOLE)
        }
        self._kept = kept
        #: By site, why it is drained.
        self.drained = drained
        self._now = now
        self._patience = 2 * units.seconds(settings.pilots.heartbeat) + _DELAY_S
        self.running = running

    def idle(self, place: Place, state: str, reason: str, seen: float) -> tuple[str, str]:
        """Return one of `prospect.IDLE` and words, or two empty texts."""
        silence = self._now - seen
        if state in _STATES:
            return _STATES[state], reason
        if words := self._holes.get(place.node):
            return BLOCKED, f"{place.node}: {words}"
        if self.running and silence > self._patience:
            return SILENT, f"the last report came {units.for_people(silence)} ago"
        if words := self.drained.get(place.site):
            return DRAINING, words
        if place.number in self._kept:
            return KEPT, f"for job {self._kept[place.number]}"
        return "", ""


def _offered(row: tuple[Any, ...], judge: _Judge) -> Offered | None:
    """Return the offer of a row; of a pilot that has not started nothing is known."""
    number, site, pool, state, reason, body, enrolled, seen = row
    if state in _COMING or (number == LOCAL and not judge.running):
        return None
    facts = _FACTS.decode(body)
    if number == LOCAL:
        gpus = len(facts.gpus)
        place = here(Offer(site, facts.cpus, facts.cpus, facts.memory, facts.memory, gpus, gpus))
    else:
        place = table.place(number, site, pool, facts, table.end(facts, enrolled))
    idle, words = judge.idle(place, state, reason, seen)
    if number == LOCAL and idle == SILENT:
        # It belongs to a process that was killed; the present one runs nothing here.
        return None
    return Offered(place, idle, words)


def _queue(row: tuple[Any, ...], judge: _Judge) -> Offered | None:
    """Return the offer of a batch queue, as its file was when it was last used."""
    number, name, trouble, _since, seen, facts, *_ = row
    told = msgspec.json.decode(facts)
    if "site" not in told:
        return None
    place = place_of(name, number, msgspec.convert(told["site"], SiteSettings))
    if name in judge.drained:
        return Offered(place, DRAINING, judge.drained[name])
    if trouble:
        return Offered(place, SILENT, f"{name}: {trouble}")
    idle, words = judge.idle(place, "", "", seen)
    return Offered(place, idle, f"{name}: {words}" if words else "")


def _drained(sites: Iterable[tuple[Any, ...]]) -> dict[str, str]:
    """Return by whom sites were drained, and why."""
    found = {}
    for row in sites:
        if row[6]:
            by, why = row[7] or "a person", f": {row[9]}" if row[9] else ""
            found[row[1]] = f"{row[1]} was drained by {by}{why}"
    return found


def _edges(
    db: Db, numbers: dict[str, int], judge: _Judge, now: float, *, running: bool
) -> list[Offered]:
    """Return offers of sites with an agent that have reported to this hub."""
    found = []
    for one in view.look(db, now, running=running).edges:
        if one.name not in numbers:
            continue
        facts = edge.SiteFacts(one.batch, one.applications, attributes=view.offer(one, now))
        place = edge.place_of(one.name, numbers[one.name], facts)
        idle = _EDGES.get(one.state, DRAINING if one.draining else "")
        words = f"{one.name}: {one.words}" if idle else ""
        if not idle and one.name in judge.drained:
            idle, words = DRAINING, judge.drained[one.name]
        found.append(Offered(place, idle, words))
    return found


def holder(mark: str) -> int:
    """Read from the mark of an attempt which pilot holds it; what is no pilot's runs here."""
    found = _HOLDER.fullmatch(mark)
    return int(found[1]) if found else LOCAL


def _take(db: Db, places: dict[int, Place]) -> dict[str, int]:
    """Take what running jobs use from their places; return the cores in use by owner."""
    cores: dict[str, int] = {}
    specs: dict[int, JobSpec] = {}
    queues = [one for one in places.values() if one.attributes.get(QUEUE)]
    for mark, number, owner, count in db.rows("offer_used"):
        if number not in specs:
            specs[number] = records.read_spec(db.value("spec_body", id=number))
        needs = specs[number].resources
        cores[owner or me()] = cores.get(owner or me(), 0) + count * needs.cpus
        place = next((one for one in queues if mark in one.marks), None) or places.get(holder(mark))
        if place is not None:
            _carve(place, needs, count)
    return cores


def _carve(place: Place, needs: Resources, count: int) -> None:
    place.free_cpus -= count * needs.cpus
    place.free_memory -= count * (needs.memory or 0)
    place.free_gpus -= count * needs.gpus
    place.free_disk -= count * (needs.disk or 0)
