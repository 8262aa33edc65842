"""The local site: claims queued jobs, runs them on this machine, records how they ended."""

from __future__ import annotations

import asyncio
import collections
import functools
import itertools
import logging
import os
import signal
from collections.abc import Collection, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from pilotage.base import crash, errors, text
from pilotage.job import model, moves, records, retry
from pilotage.job.moves import EndedJob
from pilotage.job.outcome import Cause
from pilotage.match import place as fit
from pilotage.match.place import Granted, Offer, Stop
from pilotage.match.queue import JobQueue
from pilotage.match.turn import TurnRecords
from pilotage.run import launch, starter
from pilotage.run.model import Ending, EndReason, Launch, Started
from pilotage.run.offer import LOCAL, here
from pilotage.run.outcome import classify
from pilotage.run.starter import Starter
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.batch")
_End = tuple[str, retry.AttemptEnd]
_GLANCE_S = 0.2
_MOMENT_S = 1.0
#: How long ends of jobs may wait to be written down together, and how many.
_BLINK_S = 0.02
_MANY = 16
#: How long payloads have to end by themselves when the runner stops.
_GRACE_S = 10.0
#: How long a question may wait for work.
_PATIENCE_S = 20.0
#: The number of starters in a row that may die before they are ready.
_TRIES = 5
#: Weight of the newest job in the mean of how long jobs take.
_NEWEST = 0.2


class JobListener:
    """Receives starts and ends of jobs."""

    def started(self, claim: moves.Claim, binding: model.Binding, outputs: list[str]) -> None:
        """Note that a job is about to start."""

    def ended(self, rule: str, job: int) -> None:
        """Note that a job ended, after this is on disk."""


class LocalSite:
    """Runs jobs on this machine, as many at once as fit."""

    def __init__(
        self, writer: Writer, queue: JobQueue, place: launch.LaunchContext, offer: Offer,
        state: Path, listener: JobListener,
    ) -> None:  # fmt: skip
        """Get ready; nothing happens before `run`."""
        self._taking = True
        self._writer = writer
        self._queue = queue
        self._place = place
        self._offer = offer
        self._state = state
        self._listener = listener
        self._here = here(offer)
        self._tenants: dict[str, RunningJob] = {}
        #: Claimed already, to be started the moment there is room.
        self._shelf: collections.deque[tuple[RunningJob, Launch]] = collections.deque()
        self._ends: list[_End] = []
        self._pids: dict[str, int] = {}
        self._mean_wall = 1.0
        #: Whether a question waits at the queue, and the one that was asked after it.
        self._waiting = False
        self._said: tuple[asyncio.Future[Granted], list[RunningJob]] | None = None
        self._alive = False
        self._starter: Starter

    def poke(self) -> None:
        """Report ends to the queue and poll it again; call it in the event loop's thread only."""
        if not (self._waiting and self._ends):
            self._queue.nudge(LOCAL)
        elif self._said is None:
            # This has the question that waits answered, too.
            self._said = self._say()

    async def run(self, *, linger: bool = False, taking: bool = True) -> None:
        """Run jobs until cancelled; `linger` says whether payloads then go on without us.

        Without `taking` only what an earlier process left running is looked after.
        """
        self._taking = taking
        await self._adopt()
        if not (taking or self._tenants):
            return
        failures = 0
        while True:
            try:
                async with self._open(linger=linger) as self._starter:
                    failures = 0
                    await self._work(linger=linger)
            except errors.Unavailable as error:
                # One that dies before it is ready has begun nothing; that all do is a fault.
                failures += 1
                if failures >= _TRIES or isinstance(error, errors.StoreUnavailable):
                    raise
            _log.error("the starter died; what it ran counts as lost, and another takes its place")
            await anyio.sleep(_GLANCE_S)

    async def _work(self, *, linger: bool) -> None:
        """Run jobs for as long as the starter lives; on the way out, put back what ran."""
        try:
            await self._serve()
        except anyio.get_cancelled_exc_class():
            if not linger:
                with anyio.CancelScope(shield=True):
                    await self._wind_down()
            raise

    def _open(self, *, linger: bool) -> AbstractAsyncContextManager[Starter]:
        shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        known = shown.split(",") if shown else map(str, range(self._offer.gpus))
        devices = list(itertools.islice(known, self._offer.gpus))
        return Starter.open(self._state, slots=self._offer.cpus, linger=linger, devices=devices)

    async def _serve(self) -> None:
        """Run jobs for as long as the starter lives."""
        self._alive = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._collect)
            tasks.start_soon(self._watch_adopted)
            tasks.start_soon(self._note_pids)
            tasks.start_soon(self._ask_again)
            await self._queue.do(self._open_up)
            if self._shelf:
                await self._hand_over()
            await self._start()
            while self._alive or self._said:
                await self._turn()
            tasks.cancel_scope.cancel()

    # -- one turn --------------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Return what ended and take what comes next, in one transaction; then start that."""
        await anyio.lowlevel.checkpoint()
        answer, leaving = self._said or self._say()
        self._said = None
        self._waiting = not leaving
        try:
            granted = await asyncio.shield(answer)
        except anyio.get_cancelled_exc_class():
            # What is claimed must get to the shelf, also when we stop: it is put back from there.
            self._queue.nudge(LOCAL)
            with anyio.CancelScope(shield=True):
                await self._hear_out(answer, leaving)
                if self._said:
                    await self._hear_out(*self._said)
            raise
        finally:
            self._waiting = False
        with anyio.CancelScope(shield=True):
            await self._take(granted, leaving)

    async def _hear_out(self, answer: asyncio.Future[Granted], leaving: list[RunningJob]) -> None:
        """Take the last answer; what cannot be written is none, and the next start finds out."""
        if await self._comes(answer):
            await self._take(answer.result(), leaving)

    async def _comes(self, written: asyncio.Future[Any]) -> bool:
        """Wait for something of the queue, but not for a store that cannot be written."""
        while not (written.done() or self._queue.broken):
            await asyncio.wait([written], timeout=_GLANCE_S)
        return written.done()

    def _say(self) -> tuple[asyncio.Future[Granted], list[RunningJob]]:
        """Report ends to the queue and claim more; wait only if nothing ended."""
        ends, self._ends = self._ends, []
        leaving = [self._tenants.pop(key) for key, _ in ends]
        ended = [
            EndedJob(one.job, one.attempt, one.number, end)
            for (_, end), one in zip(ends, leaving, strict=True)
        ]
        ahead = how_many_ahead(self._offer.cpus, self._mean_wall)
        # Asked at once: what ends from now on must find the question there to be answered.
        return self._queue.exchange(LOCAL, ended, ahead=ahead, park=not ended), leaving

    async def _take(self, granted: Granted, leaving: list[RunningJob]) -> None:
        for running in leaving:
            self._listener.ended(running.rule, running.job)
        if leaving:
            self._starter.acknowledge(running.key for running in leaving if not running.adopted)
        if granted.claims:
            await self._shelve(granted)
        await self._stop(granted.stops)

    @property
    def _folder(self) -> str:
        return str(self._state / "jobs")

    # -- start -----------------------------------------------------------------------------------

    async def _shelve(self, granted: Granted) -> None:
        """Prepare claimed jobs, and start those for which there is room."""
        outputs: dict[int, list[str]] = {}
        ready = []
        for claim in granted.claims:
            spec = granted.specs[claim.spec]
            folder = moves.attempt_dir(self._folder, claim.job, claim.attempt)
            running = RunningJob(claim.job, claim.attempt, claim.spec, spec, claim.rule, folder)
            self._tenants[running.key] = running
            binding = records.read_binding(claim.binding)
            prepared = self._prepare(running, binding, claim.owner)
            if isinstance(prepared, retry.AttemptEnd):
                self._ends.append((running.key, prepared))
                continue
            running.outputs = prepared.outputs
            ready.append((running, prepared.launch))
            declared = [*prepared.outputs.values(), *prepared.optional.values()]
            self._listener.started(claim, binding, declared)
            if declared:
                outputs[claim.job] = [text.store_path(path) for path in declared]
        if outputs:
            await self._writer.run(lambda db: moves.declare(db, outputs))
        self._shelf.extend(ready)
        await self._start()

    def _prepare(
        self, running: RunningJob, binding: model.Binding, owner: str
    ) -> launch.Prepared | retry.AttemptEnd:
        """Return which process to start, or why the job must not."""
        if objection := launch.objection(binding, running.spec.on_change):
            return retry.AttemptEnd(
                ok=False, message=objection, cause=Cause.INPUT, call_off=objection
            )
        try:
            launch.require_inputs(running.spec, binding, self._place.base, running.job)
            return launch.prepare(
                self._place, running.spec, binding,
                job=running.job, attempt=running.attempt, folder=running.dir, owner=owner,
            )  # fmt: skip
        except (errors.PilotageError, OSError) as error:
            return retry.AttemptEnd(
                ok=False, message=f"cannot start: {error}", cause=Cause.NOT_STARTED
            )

    async def _start(self) -> None:
        """Send to the starter what there is room for, and plain jobs ahead of that."""
        taken = []
        alike = bool(self._shelf) and self._all_alike()
        while self._shelf:
            needs = self._shelf[0][0].spec.resources
            # The starter runs as many at once as there are cores, so that more may wait there as
            # long as each that it holds needs one core and nothing else.
            if not (fit.fits(needs, self._offer) or (alike and plain(needs))):
                break
            alike = alike and plain(needs)
            running, one = self._shelf.popleft()
            self._offer = fit.carve(needs, self._offer)
            taken.append((running, one))
        if not taken:
            return
        try:
            await self._starter.start([one for _, one in taken])
        except errors.Unavailable:
            # It has died, and its last reports come as they do: the next starter takes these.
            for running, one in reversed(taken):
                self._shelf.appendleft((running, one))
                self._offer = fit.carve(running.spec.resources, self._offer, sign=1)
        crash.point("job.sent")

    async def _hand_over(self) -> None:
        """Write down that what an earlier starter did not begin is this one's, before it begins."""
        shelved = [(running.job, running.attempt) for running, _ in self._shelf]
        lock = str(self._starter.lock)
        await self._writer.run(lambda db: moves.hand_over(db, shelved, lock))

    def _all_alike(self) -> bool:
        """Return whether all that the starter holds is plain, and nothing else runs here."""
        shelved = {one.key for one, _ in self._shelf}
        return all(
            plain(one.spec.resources) and not one.adopted
            for one in self._tenants.values()
            if one.key not in shelved
        )

    async def _stop(self, stops: Collection[Stop]) -> None:
        """End the jobs that a person or the matchmaker wants ended."""
        for one in stops:
            key, words = f"{one.job}.{one.attempt}", one.words
            running = self._tenants.get(key)
            if running is None or running.stopping:
                continue
            running.stopping = anyio.current_time()
            shelved = next((one for one in self._shelf if one[0] is running), None)
            if shelved:
                self._shelf.remove(shelved)
                self._ends.append(
                    (key, retry.AttemptEnd(ok=False, message=words, cause=Cause.STOPPED))
                )
            elif running.adopted:
                await _signal(running, signal.SIGTERM)
            else:
                await self._starter.stop(key, words)

    # -- end -------------------------------------------------------------------------------------

    async def _collect(self) -> None:
        async for reports in self._starter:
            for report in reports:
                if isinstance(report, Started):
                    self._pids[report.key] = report.pid
                else:
                    crash.point("result.received")
                    if report.reason is EndReason.LOST:
                        # What is claimed from now on belongs to the next starter.
                        self._here.taking = False
                    self._hear(report)
            # Room is filled at once from the shelf; the turn writes down what ended meanwhile.
            await self._start()
        self._alive = False
        self.poke()

    def _hear(self, ending: Ending) -> None:
        """Take in how a job ended, and give its room back."""
        running = self._tenants[ending.key]
        self._pids.pop(ending.key, None)
        self._offer = fit.carve(running.spec.resources, self._offer, sign=1)
        if ending.usage:
            self._mean_wall += _NEWEST * (ending.usage.wall - self._mean_wall)
        end = classify(ending, running.spec.ok_codes, lambda: launch.missing(running.outputs))
        self._ends.append((ending.key, end))
        if -self._offer.free_cpus < self._offer.cpus or len(self._ends) >= _MANY:
            self.poke()
        elif len(self._ends) == 1:
            # There is enough to do: what ends in the next moment is written down together.
            asyncio.get_running_loop().call_later(_BLINK_S, self.poke)

    async def _note_pids(self) -> None:
        """Write down the processes of jobs that run for longer than a moment."""
        while True:
            await anyio.sleep(_MOMENT_S)
            if self._pids:
                pids, self._pids = self._pids, {}
                await self._writer.run(functools.partial(moves.note_pids, pids=pids))

    async def _ask_again(self) -> None:
        """Re-poll periodically: time-based changes send no notification."""
        while True:
            await anyio.sleep(_PATIENCE_S)
            self.poke()

    async def _wind_down(self) -> None:
        """Stop what runs, and put it back in the queue before we go."""
        why = "stopped together with its runner"
        for running, _ in self._shelf:
            self._ends.append(
                (
                    running.key,
                    retry.AttemptEnd(ok=False, message=why, cause=Cause.STOPPED, stopped=True),
                )
            )
        over = {key for key, _ in self._ends}
        held = {key for key, one in self._tenants.items() if not one.adopted and key not in over}
        for key in held:
            await self._starter.stop(key, why, _GRACE_S)
        with anyio.move_on_after(_GRACE_S + _MOMENT_S):
            while held:
                for report in await anext(self._starter, []):
                    if isinstance(report, Ending):
                        self._hear(report)
                        held.discard(report.key)
        ends = [(self._tenants[key], end) for key, end in self._ends]
        ended = [EndedJob(one.job, one.attempt, one.number, end) for one, end in ends]

        def leave(ledger: TurnRecords, db: Db, now: float) -> None:
            ledger.finish(db, [(LOCAL, ended)], now)
            ledger.matcher.leave(LOCAL, now)
            if self._taking:
                self._show(db, "down", now)

        written = asyncio.create_task(self._queue.do(leave))
        if await self._comes(written):
            written.result()
        else:
            written.cancel()
            _log.error(
                "the store cannot be written; the next start finds out what became of %d jobs",
                len(ended),
            )

    # -- after a restart -------------------------------------------------------------------------

    async def _adopt(self) -> None:
        for running in await self._writer.run(lambda db: left_running(db, self._place)):
            self._tenants[running.key] = running
            self._offer = fit.carve(running.spec.resources, self._offer)
        await self._queue.do(self._join)
        await self._look_at_adopted()

    def _show(self, db: Db, state: str, now: float) -> None:
        """Let people see this machine among the pilots."""
        facts = {
            **self._here.attributes, "work": str(self._state),
            "gpus": [{} for _ in range(self._here.gpus)],
        }  # fmt: skip
        db.run(
            "pilot_local", name=self._here.node, site=self._here.site, state=state,
            facts=text.dump(facts), now=now,
        )  # fmt: skip

    def _open_up(self, _ledger: TurnRecords, _db: Db, _now: float) -> None:
        """Let the matchmaker know that a starter waits for work."""
        self._here.holder = str(self._starter.lock)
        self._here.marks.add(self._here.holder)
        self._here.taking = self._taking

    def _join(self, ledger: TurnRecords, db: Db, now: float) -> None:
        """Register this machine, and what already runs here, with the matchmaker."""
        if self._taking:
            self._show(db, "available", now)
        ledger.join(self._here, lambda mark: mark.startswith("/"))

    async def _watch_adopted(self) -> None:
        while any(running.adopted for running in self._tenants.values()):
            await anyio.sleep(_GLANCE_S)
            await self._look_at_adopted()
            for running in list(self._tenants.values()):
                if running.adopted and 0 < running.stopping < anyio.current_time() - _GRACE_S:
                    await _signal(running, signal.SIGKILL)

    async def _look_at_adopted(self) -> None:
        heard = {key for key, _ in self._ends}
        held = [one for one in self._tenants.values() if one.adopted and one.key not in heard]
        for ending in await anyio.to_thread.run_sync(endings, held):
            self._hear(ending)


async def _signal(running: RunningJob, number: int) -> None:
    await anyio.to_thread.run_sync(starter.signal_adopted, running.key, running.adopted, number)


#: Jobs that are claimed before there is room for them, at most.
_MOST_AHEAD = 32
#: Seconds of work to have at hand; jobs longer than this are never claimed ahead.
_AHEAD_S = 0.1


class RunningJob(msgspec.Struct):
    """A job that runs on this machine."""

    job: int
    attempt: int
    #: The number of its definition, and that itself.
    number: int
    spec: model.JobSpec
    rule: str
    dir: str
    outputs: dict[str, str] = {}
    #: Lock file of the starter of an earlier process that holds it; empty if it is ours.
    adopted: str = ""
    #: When it was asked to end, in seconds of the event loop's clock; 0 if it was not.
    stopping: float = 0.0

    @property
    def key(self) -> str:
        """The name of the attempt."""
        return f"{self.job}.{self.attempt}"


def plain(needs: model.Resources) -> bool:
    """Return whether a job needs one core and nothing else, as most do."""
    return needs.cpus == 1 and not needs.memory and not needs.gpus


def how_many_ahead(cpus: int, wall: float) -> int:
    """Return how many jobs to claim before there is room for them, if jobs take so long."""
    if wall >= _AHEAD_S:
        return 0
    return min(_MOST_AHEAD, int(cpus * _AHEAD_S / max(wall, 0.001)))


def left_running(db: Db, place: launch.LaunchContext) -> list[RunningJob]:
    """Read the jobs that ran when the last process ended."""
    found = []
    for job, attempt, folder, lock, _, number, binding, _, _, rule, _ in db.rows("job_running"):
        if not lock.startswith("/"):
            continue
        spec = records.read_spec(db.value("spec_body", id=number))
        running = RunningJob(job, attempt, number, spec, rule, text.load_path(folder), adopted=lock)
        one = records.read_binding(binding)
        try:
            prepared = launch.prepare(
                place, running.spec, one, job=job, attempt=attempt, folder=running.dir
            )
            running.outputs = prepared.outputs
        except (errors.PilotageError, OSError) as error:
            _log.warning("job %d: its outputs cannot be named any more: %s", job, error)
        found.append(running)
    return found


def endings(adopted: Iterable[RunningJob]) -> list[Ending]:
    """Look how adopted jobs ended; one whose starter died without evidence is lost."""
    found, lost = [], []
    held = list(adopted)
    # Whether a starter lives must be known before its evidence is read: it writes that first.
    dead = {lock for lock in {one.adopted for one in held} if not starter.alive(Path(lock))}
    for running in held:
        if (ending := starter.evidence(running.dir)) and ending.key == running.key:
            found.append(ending)
        elif running.adopted in dead:
            lost.append(running.key)
    if lost:
        starter.end_orphans(lost)
        _log.warning("%d attempts were lost when an earlier process died", len(lost))
    why = "the process that held it died without evidence of its end"
    return found + [Ending(key, 0.0, None, None, EndReason.LOST, why, None) for key in lost]
