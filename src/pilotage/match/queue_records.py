"""Queued jobs, leases and ends of attempts: the store's rows in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from pilotage.base import crash, errors
from pilotage.base.owner import me
from pilotage.job import moves, records
from pilotage.job.model import JobSpec, Workflow
from pilotage.match.blackhole import BlackHoleGuard
from pilotage.match.classes import QueuedJob
from pilotage.match.cluster import Cluster
from pilotage.match.negotiate import Matcher
from pilotage.match.place import Lease, Place, mark
from pilotage.store import Db

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
            if end.wall is not None and not (end.stopped or end.lost or end.call_off):
                # Jobs of one definition do the same, jobs of one cluster only need the same.
                kind = (place.kinds[one.job].cluster.number, one.spec)
                self.guard.saw(place.node, kind, end.ok, end.wall, now)
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
