"""A site with an agent as a place of the matchmaker: claimed jobs are sent as messages."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import anyio.to_thread
import msgspec

from pilotage.base import crash, errors, text
from pilotage.base.owner import me
from pilotage.base.supervise import Background
from pilotage.batch import job as guest
from pilotage.batch import records as sites
from pilotage.batch.job import BatchJob
from pilotage.bus.fields import MOST_CARRIED, MOST_LOG
from pilotage.bus.model import BUSY, LIMITS, NO_APPLICATION, Input
from pilotage.edge import cancel, message, records
from pilotage.edge.message import Handoff, HubIdentity, RemoteJob
from pilotage.edge.records import RemoteAttempt
from pilotage.job import moves, retry
from pilotage.job import records as jobs
from pilotage.job.model import JobSpec, State
from pilotage.job.moves import EndedJob
from pilotage.job.outcome import Cause
from pilotage.match.cluster import QUEUE
from pilotage.match.place import Granted, Place, Stop, queue_mark
from pilotage.match.queue import JobQueue
from pilotage.match.submission import ONLY_APPLICATIONS
from pilotage.match.turn import TurnRecords
from pilotage.run import launch
from pilotage.run import outcome as run_outcome
from pilotage.run.local import JobListener
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.edge")
_ANY = 1 << 40
#: Ends that come within this time are written together, in seconds.
_BLINK_S = 0.02
#: Seconds before data is tried again that could not be sent or brought home.
_AGAIN_S = 5.0
#: Jobs at a site up to which their messages may carry more than 32 KiB of inputs.
_FEW = 100
#: What a site calls the cause of a failure, and what it is here.
_CAUSES = {
    "exit": Cause.EXIT, "signal": Cause.SIGNAL, "timeout": Cause.TIMEOUT, "memory": Cause.MEMORY,
    "disk": Cause.DISK, "output": Cause.OUTPUT, "input": Cause.INPUT, "node_lost": Cause.NODE,
    "preempted": Cause.PREEMPTED, "killed": Cause.KILLED, "cancelled": Cause.CANCELLED,
    "stopped": Cause.STOPPED,
}  # fmt: skip
#: Refusals that pass with time or with other rules of the site, and seconds until a site that has
#: enough is sent more.
_PASSING, _BUSY_S = frozenset({LIMITS, NO_APPLICATION, BUSY}), 30.0
#: Errors of a single job, which must not keep others from being sent.
_ODD = (errors.PilotageError, OSError, LookupError, TypeError, ValueError)


class SiteFacts(msgspec.Struct, frozen=True):
    """What a site reports of itself."""

    batch: str = ""
    applications: tuple[str, ...] = ()
    #: Why it accepts no jobs; empty if it does.
    closed: str = ""
    #: What requirements may ask for beside that, such as `free_nodes`.
    attributes: dict[str, Any] = {}
    #: A digest of its rules for jobs; after a change it may accept jobs that it refused.
    rules: tuple[str, ...] = ()
    #: Applications whose jobs may carry small inputs in their messages.
    carries: frozenset[str] = frozenset()
    #: Bytes of such inputs that one message may carry.
    carried: int = MOST_LOG


class SiteData(Protocol):
    """Carries data between this hub and sites that fetch and send it by URL."""

    async def publish(
        self, attempt: tuple[int, int], paths: Mapping[str, str], site: str, *, carried: int
    ) -> tuple[Input, ...]:  # fmt: skip
        """Put files of the project where a site can fetch them; each has its path there.

        Small ones go with the message, which carries at most `carried` bytes of them.
        """
        ...

    def folder(self, job: int, number: int, site: str) -> tuple[str, str]:
        """Name the folder for the outputs of an attempt: as the site names it, and as we do."""
        ...

    async def home(self, place: str, digest: str, files: Mapping[str, str]) -> None:
        """Fetch outputs; `files` has the target by path in the folder."""

    async def clear(self, attempt: tuple[int, int], site: str, *, left: bool) -> None:
        """Remove what was published for an attempt that is over, and what it has `left`, if any."""

    async def sweep(self) -> None:
        """Remove what an earlier process has left behind."""


@dataclass(frozen=True)
class EdgeHub:
    """Services of the hub that the places of all sites share."""

    queue: JobQueue
    writer: Writer
    data: SiteData
    listener: JobListener
    #: The identity of this hub at sites.
    address: HubIdentity
    #: The folder of the project, and the one of its attempts.
    base: str
    folder: str


class EdgePlace:
    """One site with an agent."""

    def __init__(self, name: str, facts: SiteFacts, hub: EdgeHub) -> None:
        """Prepare; `run` starts it."""
        self.name = name
        self._facts = facts
        self._queue, self._writer, self._data = hub.queue, hub.writer, hub.data
        self._listener, self._address = hub.listener, hub.address
        self._base, self._folder = hub.base, hub.folder
        self._place: Place | None = None
        self._held: dict[tuple[int, int], BatchJob] = {}
        #: Why attempts are to end.
        self._stops: dict[tuple[int, int], str] = {}
        self._ends: list[tuple[BatchJob, retry.AttemptEnd]] = []
        #: Attempts whose end is being seen to.
        self._closing: set[tuple[int, int]] = set()
        #: Attempts whose messages were written with their claims.
        self._written: set[tuple[int, int]] = set()
        self._waiting = False
        self._tasks = Background(_log, f"site {name}")

    async def run(self) -> None:
        """Take jobs until cancelled."""
        place = await self._join()
        try:
            while True:
                await self._turn(place)
        finally:
            # Jobs at the site continue, and the next process adopts them.
            self._tasks.cancel()

    def change(self, facts: SiteFacts) -> None:
        """Apply a new report of the site."""
        if facts == self._facts:
            return
        before, self._facts = self._facts, facts
        other = (before.applications, before.rules) != (facts.applications, facts.rules)
        if self._place is None:
            return
        number = self._place.number

        def apply(ledger: TurnRecords, _db: Db, _now: float) -> None:
            place = ledger.matcher.places.get(number)
            if place is not None:
                # It asks again at once.
                ledger.unpark(number)
                place.taking = not facts.closed
                if other:
                    ledger.matcher.forgive(place)
                ledger.matcher.describe(place, _attributes(self.name, facts))

        self._queue.change(apply)

    # -- registration ----------------------------------------------------------------------------

    async def _join(self) -> Place:
        """Register this site with the matchmaker, and adopt the attempts of an earlier process."""
        found: list[list[tuple[Any, ...]]] = []
        made: list[Place] = []
        # Drop what a failed run had in hand, except requests to end jobs: the store has the rest.
        self._held, self._ends, self._closing = {}, [], set()
        self._written, self._waiting = set(), False

        def join(ledger: TurnRecords, db: Db, _now: float) -> None:
            place = place_of(self.name, sites.number(db, self.name), self._facts)
            place.on_claim = self._write_steps
            found.append(db.rows("site_claims", holder=place.holder))
            before = ledger.matcher.places.get(place.number)
            if before is None:
                ledger.join(place)
            else:
                ledger.unpark(before.number)
            made.append(before or place)

        await self._queue.do(join)
        self._place = made[-1]
        claims = [moves.Claim(*row[:7]) for row in found[-1]]
        specs = await self._writer.run(
            lambda db: {one.spec: db.value("spec_body", id=one.spec) for one in claims}
        )
        read = {number: jobs.read_spec(body) for number, body in specs.items()}
        held = self._guests(claims, read)
        rows = await self._writer.run(lambda db: [records.get(db, *one.attempt) for one in held])
        for one, row in zip(held, rows, strict=True):
            if row is None:
                # It was claimed by a process that died before the message was written.
                self._tasks.start(self._begin(one))
            elif row.over:
                self.over(row)
            elif one.attempt in self._stops:
                self._tasks.start(self._cancel(one))
        return self._place

    def _guests(
        self, claims: Sequence[moves.Claim], specs: Mapping[int, JobSpec]
    ) -> list[BatchJob]:  # fmt: skip
        made = []
        for claim in claims:
            spec = specs[claim.spec]
            bounds = self._base if claim.owner not in ("", me()) else ""
            base = spec.base or self._base
            one = BatchJob(claim, spec, jobs.read_binding(claim.binding), base, bounds)
            self._held[one.attempt] = one
            made.append(one)
        return made

    # -- one turn --------------------------------------------------------------------------------

    async def _turn(self, place: Place) -> None:
        """Report what ended and take what comes next, in one transaction."""
        ends, self._ends = self._ends, []
        ended = [
            EndedJob(one.claim.job, one.claim.attempt, one.claim.spec, end) for one, end in ends
        ]
        self._waiting = not ended
        answer = self._queue.exchange(place.number, ended, park=not ended)
        if self._waiting and self._ends:
            self._queue.nudge(place.number)
        granted = await answer
        self._waiting = False
        if ends:
            crash.point("remote.ended")
        for one, _ in ends:
            self._forget(one)
        for one in self._guests(granted.claims, granted.specs):
            self._tasks.start(self._begin(one))
        self._stop(granted.stops)

    def _forget(self, one: BatchJob) -> None:
        """Forget a job whose end is on disk."""
        self._held.pop(one.attempt, None)
        self._stops.pop(one.attempt, None)
        self._closing.discard(one.attempt)
        if one.claim.rule:
            self._listener.ended(one.claim.rule, one.claim.job)
        left = bool(one.spec.outputs or one.spec.optional_outputs)
        if left or guest.reads(one):
            self._tasks.start(self._clear(one, left=left))

    async def _clear(self, one: BatchJob, *, left: bool) -> None:
        try:
            await self._data.clear(one.attempt, self.name, left=left)
        except errors.PilotageError as error:
            _log.info("job %s: its transferred data is not removed: %s", one.key, error)

    def _finish(self, one: BatchJob, end: retry.AttemptEnd) -> None:
        """Record an end soon, together with others that end until then."""
        self._ends.append((one, end))
        asyncio.get_running_loop().call_later(_BLINK_S, self._nudge)

    def _nudge(self) -> None:
        if self._waiting and self._ends and self._place is not None:
            self._waiting = False
            self._queue.nudge(self._place.number)

    # -- to the site -----------------------------------------------------------------------------

    def _write_steps(self, db: Db, granted: Granted, now: float) -> None:
        """Write the messages of steps of workflows, whose data is ready, with their claims."""
        written = []
        for claim in granted.claims:
            binding = jobs.read_binding(claim.binding)
            attempt = (claim.job, claim.attempt)
            if (data := message.handoff(binding)) is None:
                continue
            spec = granted.specs[claim.spec]
            try:
                there = message.remote(spec, binding, spec.base or self._base, claim.job)
                data = data.of(claim.attempt)
                body = self._body(attempt, spec, there, data)
            except _ODD:
                # `_begin` finds the same error, and refuses it.
                continue
            records.add(db, attempt, self.name, data, body, now)
            written.append(attempt)
        if written:
            moves.progress(db, written, State.READY, f"on its way to {self.name}", now)
            self._written.update(written)

    def _body(
        self, attempt: tuple[int, int], spec: JobSpec, there: RemoteJob, data: Handoff
    ) -> bytes:  # fmt: skip
        key = self._address.key(message.attempt_key(*attempt))
        return message.job(there, spec, data, site=self.name, key=key, reply=self._address.reply)

    async def _begin(self, one: BatchJob) -> None:
        """Publish what a job reads, and write its message."""
        crash.point("remote.claimed")
        if one.attempt in self._written:
            self._written.discard(one.attempt)
            return
        while not self._called_off(one):
            try:
                if objection := await anyio.to_thread.run_sync(
                    launch.objection, one.binding, one.spec.on_change
                ):
                    self._finish(one, retry.AttemptEnd(
                        ok=False, message=objection, cause=Cause.INPUT, call_off=objection
                    ))  # fmt: skip
                    return
                await self._send(one)
            except errors.Unavailable as error:
                await self._say(one, f"its data waits: {error}")
                await anyio.sleep(_AGAIN_S)
            except _ODD as error:
                refused = f"it cannot run at {self.name}: {error}"
                if isinstance(error, errors.PilotageError) and error.hint:
                    refused += f" ({error.hint})"
                self._finish(one, _refused(refused, final=bool(one.spec.site)))
                return
            else:
                return

    async def _send(self, one: BatchJob) -> None:
        there = message.remote(one.spec, one.binding, one.base, one.claim.job)
        data = message.handoff(one.binding)
        data = data.of(one.claim.attempt) if data else await self._publish(one, there)
        body = self._body(one.attempt, one.spec, there, data)
        local = self._local(one, there)
        self._listener.started(one.claim, one.binding, list(local.values()))
        if self._called_off(one):
            return
        await self._writer.run(
            functools.partial(self._write, one=one, local=local, data=data, body=body)
        )
        crash.point("remote.written")
        if one.attempt in self._stops:
            await self._cancel(one)

    async def _publish(self, one: BatchJob, there: RemoteJob) -> Handoff:
        """Publish the inputs of a job for its site, and choose a folder for its outputs."""
        inputs: tuple[Input, ...] = ()
        wanted = await anyio.to_thread.run_sync(guest.wanted, one)
        if wanted:
            paths = {path: guest.relative(path, one.base) for path in wanted}
            carried = self._carried(there.application)
            inputs = await self._data.publish(one.attempt, paths, self.name, carried=carried)
        if not there.outputs:
            return Handoff(inputs=inputs)
        write, read = self._data.folder(*one.attempt, self.name)
        return Handoff(inputs=inputs, outputs=message.outputs(there, write), place=read)

    def _carried(self, application: str) -> int:
        """Return how many bytes of inputs a message may carry."""
        if application not in self._facts.carries:
            return 0
        # Messages are kept by hub, broker and agent until their jobs run: many must be small.
        most = MOST_CARRIED if len(self._held) <= _FEW else MOST_LOG
        return min(self._facts.carried, most)

    def _write(
        self, db: Db, one: BatchJob, local: Mapping[str, str], data: Handoff, body: bytes
    ) -> None:  # fmt: skip
        if local:
            moves.declare(db, {one.claim.job: [text.store_path(path) for path in local.values()]})
        records.add(db, one.attempt, self.name, data, body, self._queue.now())
        moves.progress(
            db, [one.attempt], State.READY, f"on its way to {self.name}", self._queue.now()
        )

    def _local(self, one: BatchJob, there: RemoteJob) -> dict[str, str]:
        """Return where outputs go at home, by their path at the site."""
        paths = [*there.outputs.values(), *there.optional.values()]
        return {path: os.path.normpath(os.path.join(one.base, path)) for path in paths}

    # -- the end ---------------------------------------------------------------------------------

    def end(
        self, ledger: TurnRecords, db: Db, row: RemoteAttempt, note: str = ""
    ) -> tuple[int, EndedJob] | None:
        """Return how an attempt ends, and its place, if no outputs are to be fetched.

        Both are for `ledger.finish` in the transaction of its last word; `ended` is to be called
        when that is on disk. Else `over` is. A `note` is added to its reason.
        """
        place = ledger.matcher.places.get(self._place.number) if self._place else None
        lease = place.leases.get(row.job) if place else None
        if place is None or lease is None or lease.attempt != row.number:
            return None
        spec = ledger.specs.get(db, lease.spec)
        if row.state == "done" and row.place and spec.outputs:
            return None
        end = self._ending(row, spec, lambda: _handoff(db, row.job), note)
        return place.number, EndedJob(row.job, row.number, lease.spec, end)

    def ended(self, row: RemoteAttempt) -> None:
        """Forget an attempt whose end is on disk."""
        if one := self._held.get((row.job, row.number)):
            self._forget(one)

    def _ending(
        self, row: RemoteAttempt, spec: JobSpec, handoff: Callable[[], Handoff | None], note: str
    ) -> retry.AttemptEnd:
        end = ending(row, self._stops.get((row.job, row.number), ""), named=bool(spec.site))
        if note:
            words = "; ".join(part for part in (end.message, note) if part)
            end = msgspec.structs.replace(end, note=note, message=words)
        step = handoff() if end.lost or end.refused else None
        if step is None or (end.refused and step.waits):
            return end
        # Its workflow decides whether, when and where it is tried again.
        rejected = end.message if end.refused else ""
        return msgspec.structs.replace(end, lost=False, refused=False, rejected=rejected)

    def over(self, row: RemoteAttempt, note: str = "") -> None:
        """Finish an attempt that is over at its site; a `note` is reported with its end."""
        one = self._held.get((row.job, row.number))
        if one is not None and one.attempt not in self._closing:
            self._closing.add(one.attempt)
            self._tasks.start(self._close(one, row, note))

    async def _close(self, one: BatchJob, row: RemoteAttempt, note: str) -> None:
        """Fetch the outputs of a job, and end it."""
        try:
            if row.stdout or row.stderr:
                await self._log(row)
            home = row.state == "done" and row.place and one.spec.outputs
            if home and one.attempt not in self._stops:
                await self._home(one, row)
            end = self._ending(row, one.spec, lambda: message.handoff(one.binding), note)
        except _ODD as error:
            words = f"its results cannot be brought back: {error}"
            _log.warning("job %s: %s", one.key, words)
            end = retry.AttemptEnd(ok=False, message=words, cause=Cause.OUTPUT)
        self._finish(one, end)

    async def _home(self, one: BatchJob, row: RemoteAttempt) -> None:
        there = message.remote(one.spec, one.binding, one.base, one.claim.job)
        local = self._local(one, there)
        guest.check(one, local.values())
        wanted = {path: local[path] for path in there.outputs.values()}
        while True:
            try:
                await self._data.home(row.place, row.digest, wanted)
            except errors.Unavailable as error:
                if one.attempt in self._stops:
                    return
                await self._say(one, f"its outputs wait: {error}")
                await anyio.sleep(_AGAIN_S)
            else:
                crash.point("remote.home")
                return

    async def _log(self, row: RemoteAttempt) -> None:
        """Write the log of an attempt that an earlier version has stored in the database."""
        for stream, written in (("stdout", row.stdout), ("stderr", row.stderr)):
            await anyio.to_thread.run_sync(
                run_outcome.write_output, self._folder, row.job, row.number, stream, 0, written
            )
        at = {"job": row.job, "number": row.number}
        await self._writer.run(lambda db: db.run("edge_attempt_logged", **at))

    # -- stop ------------------------------------------------------------------------------------

    def _stop(self, stops: Sequence[Stop]) -> None:
        """Cancel the jobs that a person or the matchmaker wants ended."""
        for stop in stops:
            attempt = (stop.job, stop.attempt)
            one = self._held.get(attempt)
            if one is not None and attempt not in self._stops:
                self._stops[attempt] = stop.words
                self._tasks.start(self._cancel(one))

    async def _cancel(self, one: BatchJob) -> None:
        words, address, now = self._stops[one.attempt], self._address, self._queue.now()

        def step(db: Db) -> RemoteAttempt | None:
            row = records.get(db, *one.attempt)
            if row is None or row.over or row.cancel:
                return None
            ended = cancel.cancel(db, row, words, address, now)
            return records.get(db, *one.attempt) if ended else None

        if row := await self._writer.run(step):
            self.over(row)

    def _called_off(self, one: BatchJob) -> bool:
        """End a job that is to be cancelled before its message was written."""
        words = self._stops.get(one.attempt)
        if words is not None and one.attempt not in self._closing:
            self._closing.add(one.attempt)
            self._finish(
                one, retry.AttemptEnd(ok=False, message=words, cause=Cause.STOPPED, stopped=True)
            )
        return words is not None

    # -- shared ----------------------------------------------------------------------------------

    async def _say(self, one: BatchJob, words: str) -> None:
        await self._writer.run(lambda db: records.say(db, *one.attempt, words))


def place_of(name: str, number: int, facts: SiteFacts) -> Place:
    """Describe a site with an agent to the matchmaker."""
    place = Place(
        -1 - number, name, _attributes(name, facts), cpus=_ANY, memory=_ANY * 1024, gpus=_ANY,
        disk=_ANY * 1024, until=math.inf,
    )  # fmt: skip
    place.begins = State.STAGING_IN
    place.holder = queue_mark(name)
    place.marks = {place.holder}
    place.taking = not facts.closed
    return place


def _attributes(name: str, facts: SiteFacts) -> dict[str, Any]:
    return {
        "cpus": _ANY, "memory": _ANY, "gpus": _ANY, "pool": "", "host": name, "sandboxes": [],
        **facts.attributes, QUEUE: True, "site": name, "batch": facts.batch,
        ONLY_APPLICATIONS: True, "applications": sorted(facts.applications),
    }  # fmt: skip


def _handoff(db: Db, job: int) -> Handoff | None:
    """Read the data of a job if it is a step of a workflow."""
    found = db.value("edge_job_handoff", job=job)
    return None if found is None else msgspec.json.decode(found, type=Handoff)


def ending(row: RemoteAttempt, stop: str, *, named: bool = True) -> retry.AttemptEnd:
    """Return what the last status of an attempt means for its job.

    A refused job goes back into the queue, unless the refusal is permanent, or final for
    a job that names this site.
    """
    wall = max(0.0, row.stopped - row.began) if row.began and row.stopped else None
    if row.state == "done":
        return retry.AttemptEnd(ok=True, message="", wall=wall, read_bytes=row.read or None)
    if row.state == "rejected":
        passes = row.kind == "policy" and (row.code in _PASSING or not named)
        again = _BUSY_S if row.code == BUSY else 0.0
        return _refused(f"{row.site} refused it: {row.reason}", final=not passes, again=again)
    if row.state == "cancelled" and not stop:
        words = f"cancelled at {row.site}: {row.reason}".rstrip(": ")
        return retry.AttemptEnd(
            ok=False, message=words, cause=Cause.CANCELLED, call_off=words, wall=wall
        )
    if row.state == "cancelled":
        words = f"{stop}: {row.reason}" if row.code == cancel.UNHEARD else stop
        return retry.AttemptEnd(
            ok=False, message=words, cause=Cause.STOPPED, stopped=True, wall=wall
        )
    lost = row.code == records.FORGOTTEN
    cause = Cause.LOST if lost else _CAUSES.get(row.code, Cause.KILLED)
    reason = row.reason or f"it failed at {row.site}"
    return retry.AttemptEnd(ok=False, message=reason, cause=cause, lost=lost, wall=wall)


def _refused(words: str, *, final: bool, again: float = 0.0) -> retry.AttemptEnd:
    """End an attempt that never began: for good, or so that its job goes back into the queue."""
    return retry.AttemptEnd(
        ok=False, message=words, cause=Cause.NOT_STARTED, rejected=words if final else "",
        refused=not final, again=again,
    )  # fmt: skip
