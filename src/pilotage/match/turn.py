"""One turn of the matchmaker: record what ended, see what is new, match, claim; one transaction."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import msgspec

from pilotage import crash
from pilotage.job import bulk, moves, retry
from pilotage.job.model import JobSpec
from pilotage.job.owner import me
from pilotage.match.blackhole import Guard
from pilotage.match.cluster import Cluster
from pilotage.match.negotiate import Matcher
from pilotage.match.order import Picked, Queued
from pilotage.match.place import Lease, Place
from pilotage.match.specs import Specs
from pilotage.store import Db

_WORDS = {"cancel": "cancelled by a person", "hold": "held by a person"}


class Stop(msgspec.Struct, frozen=True):
    """A job that a place is to end."""

    job: int
    attempt: int
    words: str


class Granted(msgspec.Struct):
    """What a place gets as the answer of a turn."""

    claims: list[moves.Claim]
    stops: list[Stop]
    #: The definitions of what was claimed, by number.
    specs: dict[int, JobSpec] = {}


class Request(msgspec.Struct):
    """What a place says, and how it hears."""

    place: int
    answer: Callable[[Granted], None]
    ends: list[bulk.Ended] = []
    #: Plain jobs that it would take beyond its free cores.
    ahead: int = 0
    #: Whether it waits when there is nothing to do.
    park: bool = False


class Batch(msgspec.Struct):
    """All that was asked for since the last turn."""

    #: Changes of places, in order; they may use the store.
    changes: list[Callable[[Ledger, Db, float], None]] = []
    requests: list[Request] = []


class Outcome(msgspec.Struct):
    """What a turn came to, once it is on disk."""

    answers: list[tuple[Request, Granted]]
    ended: list[tuple[int, int]]
    due: float | None


class Ledger:
    """The matchmaker's books; only the thread that writes to the store may touch them."""

    def __init__(self, matcher: Matcher, folder: str, dice: random.Random) -> None:
        self.matcher = matcher
        self.guard = Guard()
        self.specs = Specs()
        #: Which place holds a job.
        self.holder: dict[int, Place] = {}
        #: Attempts that run, by the mark of a holder who has not joined yet.
        self.orphans: dict[str, list[tuple[Queued, Lease]]] = {}
        self._clusters: dict[tuple[int, str], Cluster] = {}
        self._folder = folder
        self.dice = dice
        self._seq = 0
        self._parked: dict[int, Request] = {}
        self._stops: dict[int, list[Stop]] = {}
        self._empty: list[tuple[Request, Granted]] = []
        self._ended: list[tuple[int, int]] = []
        #: Whether the last turn is not known to be on disk.
        self._doubt = True

    def turn(self, db: Db, batch: Batch, now: float) -> Outcome:
        """Do a turn; it may be run again when it could not be written."""
        if self._doubt:
            self._reload(db, now)
        self._doubt = True
        self._ended = []
        for change in batch.changes:
            change(self, db, now)
        ends = [(self.matcher.places.get(one.place), one.ends) for one in batch.requests]
        self.finish(db, ends, now)
        self._follow(db, now)
        due = self.matcher.due(now)
        self._hear_people(db, now)
        picked = self._match(batch.requests, now)
        claims = self._claim(db, picked, now)
        return Outcome(self._answers(batch.requests, claims), self._ended, due)

    def settled(self, outcome: Outcome) -> None:
        """Hear that the turn is on disk; who is answered waits no more."""
        self._doubt = False
        self._empty = []
        for request, granted in outcome.answers:
            if self._parked.get(request.place) is request:
                del self._parked[request.place]
                if request.place in self.matcher.places:
                    self.matcher.unpark(self.matcher.places[request.place])
            if granted.stops:
                self._stops.pop(request.place, None)

    def never(self) -> set[int]:
        """Name the definitions whose jobs no place could ever run."""
        hopeless = self.matcher.hopeless
        return {spec for (spec, _), cluster in self._clusters.items() if hopeless(cluster)}

    # -- places ----------------------------------------------------------------------------------

    def join(self, place: Place, marks: Callable[[str], bool] | None = None) -> None:
        """Take a place in, with the attempts that it holds already by its mark, or by `marks`."""
        self.matcher.join(place)
        mine = [mark for mark in self.orphans if marks(mark)] if marks else [place.holder]
        for mark in mine:
            place.marks.add(mark)
            for one, lease in self.orphans.pop(mark, ()):
                self.hold(place, one, lease)

    def unpark(self, number: int) -> None:
        """Answer a place that waits, with nothing."""
        if request := self._parked.pop(number, None):
            if number in self.matcher.places:
                self.matcher.unpark(self.matcher.places[number])
            self._empty.append((request, Granted([], [])))

    def lose(self, db: Db, number: int, end: retry.End, now: float) -> None:
        """Take a place away; what it held counts as ended like this."""
        self.unpark(number)
        place = self.matcher.places.get(number)
        if place is not None:
            held = list(place.leases.values())
            self.matcher.leave(number)
        else:
            # It was taken away in a turn that could not be written, or never came back.
            held = [lease for _, lease in self.orphans.pop(f"pilot:{number}", ())]
        for lease in held:
            self.holder.pop(lease.job, None)
        self._record(
            db, [bulk.Ended(one.job, one.attempt, one.spec, end, held=True) for one in held], now
        )
        self._stops.pop(number, None)

    def stop(self, place: Place, lease: Lease, words: str, now: float) -> None:
        """Have a job ended where it runs."""
        if not lease.stopping:
            lease.stopping = now
            self._stops.setdefault(place.number, []).append(Stop(lease.job, lease.attempt, words))

    # -- ends ------------------------------------------------------------------------------------

    def finish(
        self, db: Db, ends: Iterable[tuple[Place | None, list[bulk.Ended]]], now: float
    ) -> None:
        """Record what ended; who does not hold a job any more is only heard if nobody else does."""
        heard = []
        for place, reported in ends:
            mine: dict[int, bulk.Ended] = {}
            for one in reported:
                lease = place.leases.get(one.job) if place else None
                if lease is not None and lease.attempt == one.attempt:
                    one.held = True
                    mine[one.job] = one
                elif one.job not in self.holder and one.end.ok:
                    # It comes late, and counts only if nobody has begun anew.
                    spec = db.value("job_spec", id=one.job)
                    if spec is not None:
                        heard.append(bulk.Ended(one.job, one.attempt, spec, one.end))
            if mine and place is not None:
                self._free(place, list(mine.values()), now)
                heard += mine.values()
        self._record(db, heard, now)

    def _record(self, db: Db, ended: list[bulk.Ended], now: float) -> None:
        if ended:
            bulk.finish(
                db, ended, lambda number: self.specs.get(db, number), now=now, dice=self.dice
            )
            self._ended += [(one.job, one.attempt) for one in ended]
            crash.point("result.before_commit")

    def _free(self, place: Place, ended: list[bulk.Ended], now: float) -> None:
        for one in ended:
            self.holder.pop(one.job, None)
            end = one.end
            if end.wall is not None and not (end.stopped or end.lost or end.call_off):
                # Jobs of one definition do the same, jobs of one cluster only need the same.
                kind = (place.kinds[one.job].cluster.number, one.spec)
                self.guard.saw(place.node, kind, end.ok, end.wall, now)
        self.matcher.free(place, [(one.job, one.end.wall) for one in ended], now)
        place.blocked = self.guard.verdict(place.node, now)

    # -- what is new -----------------------------------------------------------------------------

    def _follow(self, db: Db, now: float) -> None:
        last = db.value("journal_last")
        if last > self._seq:
            for row in db.rows("queue_tail", after=self._seq, last=last):
                self.matcher.add(self._queued(db, *row), now)
            self._seq = last

    def _queued(
        self, db: Db, job: int, spec: int, priority: int, limit: str, owner: str,
        not_before: float = 0.0,
    ) -> Queued:  # fmt: skip
        owner = owner or me()
        cluster = self._clusters.get((spec, owner))
        if cluster is None:
            cluster = self.matcher.clusters.of(self.specs.get(db, spec), owner)
            self._clusters[spec, owner] = cluster
        return Queued(job, priority, owner, cluster, limit, not_before)

    def _reload(self, db: Db, now: float) -> None:
        """Read the queue and who holds what anew."""
        self.matcher.clear()
        self.holder = {}
        self._seq = db.value("journal_last")
        for row in db.run("queue_load"):
            self.matcher.add(self._queued(db, *row), now)
        held_before = {
            mark: place for place in self.matcher.places.values() for mark in place.marks
        }
        self.orphans = {}
        for job, attempt, holder, limit, spec, priority, owner, started in db.rows("queue_leases"):
            held = (
                self._queued(db, job, spec, priority, limit, owner),
                Lease(job, attempt, spec, priority, started),
            )
            if holder in held_before:
                self.hold(held_before[holder], *held)
            else:
                self.orphans.setdefault(holder, []).append(held)
        for number in self._parked:
            if number in self.matcher.places:
                self.matcher.park(self.matcher.places[number])

    def hold(self, place: Place, one: Queued, lease: Lease) -> None:
        """Note that a place holds a job already."""
        self.matcher.adopt(place, one, lease)
        self.holder[lease.job] = place

    def _hear_people(self, db: Db, now: float) -> None:
        for job, attempt, asked in db.rows("job_asked"):
            place = self.holder.get(job)
            lease = place.leases.get(job) if place else None
            if place is not None and lease is not None and lease.attempt == attempt:
                self.stop(place, lease, _WORDS[asked], now)

    # -- match -----------------------------------------------------------------------------------

    def _match(self, requests: list[Request], now: float) -> list[tuple[Place, Picked]]:
        chosen: list[tuple[Place, Picked]] = []
        for request in requests:
            self.unpark(request.place)
            place = self.matcher.places.get(request.place)
            if place is None:
                continue
            most = self.guard.allowance(place.node, now) if place.blocked else None
            if most:
                place.blocked = ""
            # Cores and jobs are counted alike by who runs them ahead only while all need one core.
            alike = place.cpus - place.free_cpus == len(place.leases)
            ahead = request.ahead if alike else 0
            picked = self.matcher.pick(place, now, ahead=ahead, most=most or 4096)
            if most:
                place.blocked = self.guard.verdict(place.node, now)
            chosen += [(place, one) for one in picked]
            if request.park and not picked and not request.ends:
                self._parked[request.place] = request
                self.matcher.park(place)
        for place, picked in self.matcher.serve(now):
            chosen += [(place, one) for one in picked]
        return chosen

    def _claim(self, db: Db, chosen: list[tuple[Place, Picked]], now: float) -> dict[int, Granted]:
        granted: dict[int, Granted] = {}
        if not chosen:
            return granted
        holders = {picked.job: place.holder for place, picked in chosen}
        claims = bulk.claim(db, holders, self._folder, now)
        for place, picked in chosen:
            claim = claims.pop(picked.job, None)
            if claim is None:
                self.matcher.undo(place, picked, now)
                continue
            lease = Lease(claim.job, claim.attempt, claim.spec, picked.priority, now)
            self.matcher.grant(place, picked, lease)
            self.holder[claim.job] = place
            if place.number not in granted:
                granted[place.number] = Granted([], [])
            granted[place.number].claims.append(claim)
            granted[place.number].specs[claim.spec] = self.specs.get(db, claim.spec)
        return granted

    def _answers(
        self, requests: list[Request], granted: dict[int, Granted]
    ) -> list[tuple[Request, Granted]]:
        """Answer all who asked, and those who waited and now have something to do."""
        answers = list(self._empty)
        waiting = [self._parked[one] for one in {**granted, **self._stops} if one in self._parked]
        speaking = [one for one in requests if self._parked.get(one.place) is not one]
        for request in speaking + waiting:
            answer = granted.pop(request.place, None) or Granted([], [])
            answer.stops = self._stops.get(request.place, [])
            answers.append((request, answer))
        return answers
