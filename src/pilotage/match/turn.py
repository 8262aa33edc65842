"""One turn of the matchmaker: record what ended, see what is new, match, claim; one transaction.

The store's rows of queued jobs, leases and ends of attempts are kept in memory.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from pilotage.base import crash, errors, text
from pilotage.base.owner import me
from pilotage.job import moves, records, retry
from pilotage.job.model import JobSpec, Workflow
from pilotage.match import reserve
from pilotage.match.blackhole import BlackHoleGuard
from pilotage.match.classes import Bucket, PickedJob, QueuedJob
from pilotage.match.cluster import Cluster
from pilotage.match.negotiate import Matcher
from pilotage.match.place import Granted, Lease, Place, PlaceRequest, Stop, TurnOutcome, mark
from pilotage.match.share import cost
from pilotage.store import OUTSIDE, Db

#: Definitions kept at hand.
_MOST = 20_000


class Specs:
    """Reads each definition once, as long as it is at hand."""

    def __init__(self) -> None:
        self._known: dict[int, JobSpec] = {}

    def get(self, db: Db, number: int) -> JobSpec:
        """Read a definition."""
        spec = self._known.get(number)
        if spec is None:
            if len(self._known) >= _MOST:
                # The oldest is the least likely to be asked for again.
                del self._known[next(iter(self._known))]
            spec = self._known[number] = records.read_spec(db.value("spec_body", id=number))
        return spec


class QueueRecords:
    """Queue and leases in memory; only the writer thread may use it."""

    def __init__(self, matcher: Matcher, dice: random.Random) -> None:
        self.matcher = matcher
        self.guard = BlackHoleGuard()
        self.specs = Specs()
        #: Which place holds a job.
        self.holder: dict[int, Place] = {}
        #: Attempts that run, by the mark of a holder who has not joined yet.
        self.orphans: dict[str, list[tuple[QueuedJob, Lease]]] = {}
        #: Attempts of this turn that are over.
        self.ended: list[tuple[int, int]] = []
        #: Queued jobs of this turn that are workflows: no place runs them, their steps are matched.
        self.workflows: list[int] = []
        self.dice = dice
        self._clusters: dict[tuple[int, str], Cluster] = {}
        self._seq = 0

    def never(self, hope: Callable[[Cluster], bool] = lambda _: False) -> set[int]:
        """Name the definitions whose jobs no place could ever run, nor one that may come."""
        hopeless = self.matcher.classes.hopeless
        return {
            spec for (spec, _), cluster in self._clusters.items()
            if hopeless(cluster) and not hope(cluster)
        }  # fmt: skip

    def join(self, place: Place, marks: Callable[[str], bool] | None = None) -> None:
        """Add a place, with the attempts that it already holds by its mark, or by `marks`."""
        self.matcher.join(place)
        mine = [one for one in self.orphans if marks(one)] if marks else [place.holder]
        for name in mine:
            place.marks.add(name)
            for one, lease in self.orphans.pop(name, ()):
                self.hold(place, one, lease)

    def hold(self, place: Place, one: QueuedJob, lease: Lease) -> None:
        """Note that a place holds a job already."""
        self.matcher.adopt(place, one, lease)
        self.holder[lease.job] = place

    def tidy(self) -> None:
        """Drop clusters that no job needs."""
        used = self.matcher.tidy()
        if used is not None:
            self._clusters = {key: one for key, one in self._clusters.items() if one in used}

    # -- ends ------------------------------------------------------------------------------------

    def finish(self, db: Db, ends: Iterable[tuple[int, list[moves.EndedJob]]], now: float) -> None:
        """Record what ended; a former holder counts only if no other place holds the job."""
        heard = []
        for number, reported in ends:
            place = self.matcher.places.get(number)
            mine: dict[int, moves.EndedJob] = {}
            for one in reported:
                lease = place.leases.get(one.job) if place else None
                if lease is not None and lease.attempt == one.attempt:
                    one.held = True
                    mine[one.job] = one
                elif one.job not in self.holder and one.end.ok:
                    # It comes late, and counts only if no new attempt has begun.
                    late = db.row("attempt_facts", job=one.job, number=one.attempt)
                    if late and late[1] in (place.marks if place else {mark(number)}):
                        heard.append(moves.EndedJob(one.job, one.attempt, late[0], one.end))
            if mine and place is not None:
                for one in mine.values():
                    if one.end.refused and not one.end.again:
                        self._refuse(db, place, one)
                busy = {
                    place.kinds[one.job].cluster: one.end.again
                    for one in mine.values() if one.end.refused and one.end.again
                }  # fmt: skip
                self._free(place, list(mine.values()), now)
                for cluster, pause in busy.items():
                    self.matcher.enough(place, cluster, pause, now)
                heard += mine.values()
        self.record(db, heard, now)

    def _refuse(self, db: Db, place: Place, one: moves.EndedJob) -> None:
        """Offer jobs of a definition no more to a place that could not run one of them."""
        bucket = place.kinds[one.job]
        cluster = bucket.cluster
        if cluster.wants.apart != one.spec:
            cluster = self.matcher.clusters.apart(cluster, one.spec)
            self._clusters[one.spec, bucket.owner] = cluster
            alike = {job for (job,) in db.rows("queue_alike", spec=one.spec)}
            self.matcher.part(bucket.owner, bucket.cluster, alike, cluster)
        cluster.refused_by.add(place.number)

    def record(self, db: Db, ended: list[moves.EndedJob], now: float) -> None:
        """Record ends, independent of the holder."""
        if ended:
            moves.finish_all(
                db, ended, lambda number: self.specs.get(db, number), now=now, dice=self.dice
            )
            self.ended += [(one.job, one.attempt) for one in ended]
            crash.point("result.before_commit")

    def _free(self, place: Place, ended: list[moves.EndedJob], now: float) -> None:
        walls = []
        for one in ended:
            self.holder.pop(one.job, None)
            end = one.end
            # No job can have used more time than has passed, whatever its pilot says.
            longest = max(0.0, now - place.leases[one.job].started)
            walls.append((one.job, end.wall if end.wall is None else min(end.wall, longest)))
            # Jobs of one definition do the same, jobs of one cluster only need the same.
            kind = (place.kinds[one.job].cluster.number, one.spec)
            self.guard.ended(place.node, kind, end, now)
        self.matcher.free(place, walls, now)
        place.blocked = self.guard.verdict(place.node, now)

    # -- what is new -----------------------------------------------------------------------------

    def follow(self, db: Db, now: float) -> None:
        """Queue what the journal says is new."""
        last = db.value("journal_last")
        if last > self._seq:
            self.enter(db, db.rows("queue_tail", after=self._seq, last=last), now)
            self._seq = last

    def enter(self, db: Db, rows: Iterable[tuple[Any, ...]], now: float) -> None:
        """Queue jobs; one whose definition cannot be read must not keep others from starting."""
        unreadable = []
        for row in rows:
            try:
                if isinstance(self.specs.get(db, row[1]).recipe, Workflow):
                    self.workflows.append(row[0])
                else:
                    self.matcher.add(self._queued(db, *row), now)
            except (errors.BadRule, msgspec.ValidationError) as error:
                unreadable.append((row[0], f"its definition cannot be read: {error}"))
        for job, why in unreadable:
            moves.reject(db, job, why, now=now)

    def _queued(
        self, db: Db, job: int, spec: int, priority: int, limit: str, owner: str,
        not_before: float = 0.0,
    ) -> QueuedJob:  # fmt: skip
        owner = owner or me()
        cluster = self._clusters.get((spec, owner))
        if cluster is None:
            cluster = self.matcher.clusters.of(self.specs.get(db, spec), owner)
            self._clusters[spec, owner] = cluster
        return QueuedJob(job, priority, owner, cluster, limit, not_before)

    def reload(self, db: Db, now: float) -> None:
        """Read the queue and the leases again."""
        self.matcher.clear()
        self.holder = {}
        self._seq = db.value("journal_last")
        self.enter(db, db.run("queue_load"), now)
        held_before = {
            name: place for place in self.matcher.places.values() for name in place.marks
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


_log = logging.getLogger("pilotage.match")

#: Errors that are no fault of the request: the store cannot be written now.
NOT_NOW: tuple[type[Exception], ...] = (errors.StoreUnavailable, *OUTSIDE)
_WORDS = {"cancel": "cancelled by a person", "hold": "held by a person"}


class TurnBatch(msgspec.Struct):
    """All requests since the last turn."""

    #: Changes of places, in order; they may use the store.
    changes: list[Callable[[TurnRecords, Db, float], None]] = []
    requests: list[PlaceRequest] = []


class TurnRecords(QueueRecords):
    """Queue records and waiting requests; only the writer thread may use it."""

    def __init__(self, matcher: Matcher, folder: str, dice: random.Random) -> None:
        super().__init__(matcher, dice)
        self._folder = folder
        #: Called in each turn in which jobs ended, before what is new is matched.
        self.followers: list[Callable[[Db, float], None]] = []
        self._parked: dict[int, PlaceRequest] = {}
        #: By place and job, what is to be ended there.
        self._stops: dict[int, dict[int, Stop]] = {}
        self._empty: list[tuple[PlaceRequest, Granted]] = []
        #: What the last turn was asked; not known to be answered while that is in doubt.
        self._asked: list[PlaceRequest] = []
        #: Whether the last turn is not known to be on disk.
        self._doubt = True

    def turn(self, db: Db, batch: TurnBatch, now: float) -> TurnOutcome:
        """Do a turn; it may be run again when it could not be written."""
        self.workflows = []
        if self._doubt:
            self._forget_asked()
            self._read_anew(db, now)
        self._doubt = True
        self._asked = batch.requests
        self.ended = []
        for change in batch.changes:
            self._try(db, partial(change, self, db, now), now)
        refused = self._take_ends(db, [one for one in batch.requests if one.ends], now)
        if self.ended:
            for follow in self.followers:
                self._try(db, partial(follow, db, now), now)
        self.follow(db, now)
        self.matcher.due(now)
        self._hear_people(db, now)
        left = {request for request, _ in refused}
        asked = [one for one in batch.requests if one not in left] if left else batch.requests
        claims = self._claim(db, self._match(asked, now), now)
        answers = self._answers(asked, claims)
        return TurnOutcome(answers, self.ended, self.matcher.next_due, refused, self.workflows)

    def attempt(self, db: Db, step: Callable[[], None], now: float) -> None:
        """Do a step wholly or not at all: what it changed before it failed is read again."""
        try:
            with db.savepoint():
                step()
        except NOT_NOW:
            raise
        except errors.PilotageError:
            # A refusal comes before anything is changed.
            raise
        except Exception:
            self._read_anew(db, now)
            raise

    def _try(self, db: Db, step: Callable[[], None], now: float) -> Exception | None:
        """Do a step; one that cannot be done must not keep all others from being done."""
        try:
            self.attempt(db, step, now)
        except NOT_NOW:
            raise
        except Exception as error:  # noqa: BLE001 - the request gets the error
            _log.exception("a change of the matchmaker's records failed and is left out")
            return error
        return None

    def _take_ends(
        self, db: Db, requests: list[PlaceRequest], now: float
    ) -> list[tuple[PlaceRequest, Exception]]:
        """Record what all say that ended; if that fails, find out whose fault it is."""

        def record(some: list[PlaceRequest]) -> Callable[[], None]:
            return lambda: self.finish(db, [(one.place, one.ends) for one in some], now)

        if not requests or self._try(db, record(requests), now) is None:
            return []
        failed = [(one, self._try(db, record([one]), now)) for one in requests]
        return [(one, error) for one, error in failed if error is not None]

    def settled(self, outcome: TurnOutcome) -> None:
        """Note that the turn is on disk; answered requests wait no longer."""
        self._doubt = False
        self._empty, self._asked = [], []
        for request, granted in outcome.answers:
            if self._parked.get(request.place) is request:
                del self._parked[request.place]
                if request.place in self.matcher.places:
                    self.matcher.unpark(self.matcher.places[request.place])
            if granted.stops:
                self._stops.pop(request.place, None)

    # -- places ----------------------------------------------------------------------------------

    def unpark(self, number: int) -> None:
        """Answer a place that waits, with nothing."""
        if request := self._parked.pop(number, None):
            if number in self.matcher.places:
                self.matcher.unpark(self.matcher.places[number])
            self._empty.append((request, Granted([], [])))

    def lose(self, db: Db, number: int, end: retry.AttemptEnd, now: float) -> None:
        """Remove a place; its attempts count as ended like this."""
        self.unpark(number)
        place = self.matcher.places.get(number)
        if place is not None:
            held = list(place.leases.values())
            self.matcher.leave(number, now)
        else:
            # It was taken away in a turn that could not be written, or never came back.
            held = [lease for _, lease in self.orphans.pop(mark(number), ())]
        for lease in held:
            self.holder.pop(lease.job, None)
        self.record(
            db,
            [moves.EndedJob(one.job, one.attempt, one.spec, end, held=True) for one in held],
            now,
        )
        self._stops.pop(number, None)

    def stop(self, place: Place, lease: Lease, words: str, now: float) -> None:
        """Stop a job where it runs."""
        if not lease.stopping:
            lease.stopping = now
            stops = self._stops.setdefault(place.number, {})
            stops[lease.job] = Stop(lease.job, lease.attempt, words)

    def _hear_people(self, db: Db, now: float) -> None:
        for job, attempt, asked in db.rows("job_asked"):
            place = self.holder.get(job)
            lease = place.leases.get(job) if place else None
            if place is not None and lease is not None and lease.attempt == attempt:
                self.stop(place, lease, _WORDS[asked], now)

    # -- match -----------------------------------------------------------------------------------

    def _read_anew(self, db: Db, now: float) -> None:
        self.reload(db, now)
        for number in self._parked:
            if number in self.matcher.places:
                self.matcher.park(self.matcher.places[number])

    def _forget_asked(self) -> None:
        """Take back that those who asked in a turn that was not written wait or are answered."""
        asked = set(self._asked)
        self._empty = [one for one in self._empty if one[0] not in asked]
        self._parked = {place: one for place, one in self._parked.items() if one not in asked}

    def _match(self, requests: list[PlaceRequest], now: float) -> list[tuple[Place, PickedJob]]:
        chosen: list[tuple[Place, PickedJob]] = []
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

    def _claim(
        self, db: Db, chosen: list[tuple[Place, PickedJob]], now: float
    ) -> dict[int, Granted]:
        granted: dict[int, Granted] = {}
        if not chosen:
            return granted
        holders: dict[str, dict[int, str]] = {}
        for place, picked in chosen:
            holders.setdefault(place.begins, {})[picked.job] = place.holder
        claims: dict[int, moves.Claim] = {}
        for state, some in holders.items():
            claims |= moves.claim(db, some, self._folder, now, state)
        if missed := [picked.job for _, picked in chosen if picked.job not in claims]:
            self._queue_again(db, missed, now)
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
        for number, answer in granted.items():
            if (tell := self.matcher.places[number].on_claim) is not None:
                tell(db, answer, now)
        return granted

    def _queue_again(self, db: Db, jobs: list[int], now: float) -> None:
        """Keep jobs that are still queued and may not start yet, as when the clock went back."""
        self.enter(db, db.rows("queue_some", ids=text.dump(jobs)), now)

    def _answers(
        self, requests: list[PlaceRequest], granted: dict[int, Granted]
    ) -> list[tuple[PlaceRequest, Granted]]:
        """Answer all requests of the turn, and waiting ones that now have work."""
        answers = list(self._empty)
        waiting = [self._parked[one] for one in {**granted, **self._stops} if one in self._parked]
        told = {request for request, _ in answers}
        speaking = [
            one for one in requests
            if self._parked.get(one.place) is not one and one not in told
        ]  # fmt: skip
        for request in speaking + waiting:
            answer = granted.pop(request.place, None) or Granted([], [])
            answer.stops = list(self._stops.get(request.place, {}).values())
            answers.append((request, answer))
        return answers


#: Buckets that are examined in one round, and places for each.
_A_ROUND = 8
_LOOKS = 1000


def charge_running(matcher: Matcher, now: float) -> None:
    """Charge owners for jobs that run for longer than they were charged for."""
    for place in matcher.places.values():
        for job, lease in place.leases.items():
            bucket = place.kinds[job]
            more = cost(bucket.cluster.cpus, place.used(lease, now)) - lease.charged
            if more > 0:
                lease.charged += more
                matcher.shares.charge(bucket.owner, more, now)


def keep_room(matcher: Matcher, now: float) -> None:
    """Reserve a place for each large job that has waited too long."""
    for place in [one for one in matcher.places.values() if one.reserved]:
        if place.reserved and not matcher.usable(place.reserved.bucket, place, now):
            matcher.unreserve(place)
    tried = 0
    for bucket in list(matcher.stuck):
        if not bucket or not bucket.stuck:
            del matcher.stuck[bucket]
        elif bucket.kept is None and now - bucket.stuck > matcher.patience and tried < _A_ROUND:
            tried += 1
            # A bucket that finds nothing goes to the end of the line.
            matcher.stuck[bucket] = matcher.stuck.pop(bucket)
            homes = _homes(matcher, bucket, now)
            if found := reserve.best(bucket, homes, now):
                matcher.keep(*found)


def preempt(matcher: Matcher, now: float) -> list[tuple[Place, Lease]]:
    """Choose what to stop for jobs of higher priority that have waited for too long."""
    chosen: list[tuple[Place, Lease]] = []
    waiting = [
        one
        for one in matcher.buckets.values()
        if one and one.kept is None and now - one.since > matcher.patience
    ]
    for bucket in heapq.nsmallest(_A_ROUND, waiting, key=lambda one: one.head):
        for place in _homes(matcher, bucket, now):
            found = reserve.victims(bucket, place, bucket.first[1])
            if found and place.reserved is None:
                # Else the room would be given to the next job.
                matcher.keep(place, found[1])
                chosen += [(place, lease) for lease in found[0]]
                break
    return chosen


def _homes(matcher: Matcher, bucket: Bucket, now: float) -> Iterator[Place]:
    """Yield places that could be reserved for a bucket, a bounded number of them."""
    fitting = (
        place
        for place in matcher.classes.homes(bucket.cluster)
        if bucket.cluster.could_fit(place) and matcher.usable(bucket, place, now)
    )
    return itertools.islice(fitting, _LOOKS)
