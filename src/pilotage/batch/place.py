"""A batch queue as a place: each job that is matched to it becomes a batch job."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any

import anyio
import anyio.to_thread

from pilotage.base import crash, errors, text
from pilotage.base.owner import me
from pilotage.base.supervise import Background
from pilotage.batch import job, offer, orders, submission
from pilotage.batch import records as submissions
from pilotage.batch.driver import SubmissionDriver
from pilotage.batch.job import BatchJob, ItemFolder
from pilotage.batch.orders import Attempt, HeldJobs, ProgressWriter
from pilotage.batch.results import JobStaging, ResultFetcher
from pilotage.batch.submission import ArrayTask, Submission, TaskEnd
from pilotage.job import moves, records, retry, template
from pilotage.job.model import JobSpec, State
from pilotage.job.moves import EndedJob
from pilotage.job.outcome import Cause
from pilotage.match.place import Granted, Place, Stop
from pilotage.match.queue import JobQueue
from pilotage.match.turn import TurnRecords
from pilotage.run import launch
from pilotage.run.local import JobListener
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.batch")
#: Ends and starts that come within this time are written down together, in seconds.
_BLINK_S = 0.02
#: How often the output of running jobs is fetched, in seconds.
_FOLLOW_S = 1.0
#: How soon a site that is drained gets nothing more, in seconds.
_HEED_S = 0.2


#: Errors of one job: they must not keep others from being submitted.
ODD = (errors.PilotageError, OSError, LookupError, TypeError, ValueError)
_AGAIN_S = 5.0
#: An empty item of an order: nothing to run.
_EMPTY: dict[str, Any] = {"launch": None, "inputs": []}


class BatchPlace:
    """Claims jobs for a site, stages and submits them, and records how they ended."""

    def __init__(
        self, name: str, driver: SubmissionDriver, queue: JobQueue, writer: Writer,
        place: launch.LaunchContext, data: JobStaging, listener: JobListener,
    ) -> None:  # fmt: skip
        """Get ready; nothing happens before `run`."""
        self._name = name
        self._driver = driver
        self._remote, self._site = driver.remote, driver.remote.site
        self._queue = queue
        self._writer = writer
        self._launch = place
        self._data = data
        self._listener = listener
        self._progress = ProgressWriter(writer, queue)
        self.place: Place
        self._held = HeldJobs(self._poke)
        self._results = ResultFetcher(driver.remote, self._held, data, self._progress)
        self._fitting = orders.Fitting(driver, self._held)
        #: What is wrong with the site, as it was last reported with waiting jobs.
        self._told = ""
        self._beside = Background(_log, f"site {name}")
        self._waiting = False
        driver.join(self, pilots=False)

    async def run(self) -> None:
        """Take jobs until cancelled."""
        await self._join()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._look)
                while True:
                    await self._turn()
        finally:
            # Jobs at the site continue, and the next process adopts them.
            self._beside.cancel()

    # -- before anything -------------------------------------------------------------------------

    async def _join(self) -> None:
        """Register this queue with the matchmaker, and adopt what an earlier process left."""
        found: list[list[tuple[Any, ...]]] = []

        def join(ledger: TurnRecords, db: Db, _now: float) -> None:
            number = submissions.number(db, self._name)
            self.place = offer.place_of(self._name, number, self._site)
            self.place.taking = not submissions.asked(db, self._name)
            found.append(db.rows("site_claims", holder=self.place.holder))
            before = ledger.matcher.places.get(self.place.number)
            if before is None:
                ledger.join(self.place)
            else:
                # This site was at work in this process before: what it holds it still holds.
                ledger.unpark(before.number)
                before.slots = self.place.slots
                self.place = before

        await self._queue.do(join)
        claims = [moves.Claim(*row[:7]) for row in found[-1]]
        specs = await self._specs({claim.spec for claim in claims})
        for one in await self._batch_jobs(claims, specs):
            self._held.jobs[one.attempt] = one
        loose = dict(self._held.jobs)
        for out in await self._driver.load():
            for work in [work for work in out.works.values() if not work.pilot]:
                adopted = loose.pop((work.job, work.attempt), None)
                if adopted is None:
                    # Its end is on disk already; only the site does not know it.
                    self._beside.start(self._driver.forget([(out, work)]))
                else:
                    self._held.out[adopted.attempt] = (out, work)
                    if out.order.fit is not None:
                        job.shape(adopted, out.order.fit)
                    self._adopt(adopted, ItemFolder(out.root, out.key, work.place))
        # These were claimed, and what claimed them died before it had written the intent down.
        self._begin(list(loose.values()))

    async def _specs(self, numbers: set[int]) -> dict[int, JobSpec]:
        bodies = await self._writer.run(
            lambda db: {number: db.value("spec_body", id=number) for number in numbers}
        )
        return {number: records.read_spec(body) for number, body in bodies.items()}

    async def _batch_jobs(
        self, claims: Sequence[moves.Claim], specs: Mapping[int, JobSpec]
    ) -> list[BatchJob]:
        # Jobs of other users run elsewhere, and must not read files of this machine.
        bounds = {one.job: self._launch.base for one in claims if one.owner not in ("", me())}
        # Steps of flows have folders of their own; without one there is nothing to ask.
        may = [one.job for one in claims if one.job in bounds and specs[one.spec].cwd]
        steps = (
            await self._writer.run(lambda db: submissions.steps(db, may))
            if may
            else frozenset[int]()
        )
        made = []
        for claim in claims:
            spec, binding = specs[claim.spec], records.read_binding(claim.binding)
            own = template.render(spec.cwd, {}) if claim.job in steps else ""
            base = spec.base or self._launch.base
            made.append(BatchJob(claim, spec, binding, base, bounds.get(claim.job, ""), own))
        return made

    def _adopt(self, one: BatchJob, folders: ItemFolder) -> None:
        """Recompute the outputs of a job that an earlier process submitted."""
        try:
            job.order(one, folders, self._site, self._launch)
        except ODD as error:
            _log.warning("job %s: its outputs cannot be named any more: %s", one.key, error)

    # -- one turn --------------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Record ends and claim the next jobs, in one transaction."""
        ends, self._held.ends = self._held.ends, []
        began, self._held.began = self._held.began, []
        if began:
            await self._progress.progress(began, State.RUNNING)
        ended = [
            EndedJob(one.claim.job, one.claim.attempt, one.claim.spec, end) for one, end in ends
        ]
        self._waiting = not ended
        answer = self._queue.exchange(self.place.number, ended, park=not ended)
        if self._waiting and self._held.stirred:
            self._queue.nudge(self.place.number)
        granted = await answer
        self._waiting = False
        if ends:
            self._let_go([one for one, _ in ends])
        if granted.claims:
            await self._take(granted)
        self._stop(granted.stops)

    def _poke(self) -> None:
        """Schedule a turn; changes within a moment are written together."""
        asyncio.get_running_loop().call_later(_BLINK_S, self._nudge)

    def _nudge(self) -> None:
        if self._waiting and self._held.stirred:
            self._waiting = False
            self._queue.nudge(self.place.number)

    def _let_go(self, ended: Sequence[BatchJob]) -> None:
        """Forget jobs whose ends are on disk, here and at the site."""
        crash.point("site.finished")
        out = []
        for one in ended:
            if found := self._held.leave(one):
                out.append(found)
            if one.claim.rule:
                self._listener.ended(one.claim.rule, one.claim.job)
            self._beside.start(self._data.leave(one))
        if out:
            self._beside.start(self._driver.forget(out))

    # -- to the site -----------------------------------------------------------------------------

    async def _take(self, granted: Granted) -> None:
        fresh = await self._batch_jobs(granted.claims, granted.specs)
        self._held.jobs.update({one.attempt: one for one in fresh})
        if trouble := self._trouble:
            self._beside.start(self._progress.say([one.attempt for one in fresh], trouble))
        self._begin(fresh)

    def _begin(self, jobs: list[BatchJob]) -> None:
        for some in orders.groups(jobs, self._site):
            self._beside.start(self._send(some))

    async def _send(self, jobs: list[BatchJob]) -> None:
        """Stage the data of jobs to the site, and submit them."""
        if not any(self._data.brings(one) for one in jobs):
            await self._submit(jobs)
            return
        coming = {asyncio.create_task(self._bring(one)): one for one in jobs}
        until = asyncio.FIRST_COMPLETED if self._data.apart else asyncio.ALL_COMPLETED
        try:
            while coming:
                await asyncio.wait(coming, return_when=until)
                if self._data.apart and len(coming) > 1:
                    await asyncio.sleep(_BLINK_S)
                done = [task for task in coming if task.done()]
                brought = [(coming.pop(task), task) for task in done]
                await self._submit([one for one, task in brought if self._ready(one, task)])
        finally:
            for task in coming:
                task.cancel()

    def _ready(self, one: BatchJob, task: asyncio.Task[bool]) -> bool:
        """Return whether the data of a job is staged; an unexpected error fails only this job."""
        error = task.exception()
        if error is None:
            return task.result()
        _log.error("job %s: its data cannot be sent", one.key, exc_info=error)
        self._held.finish(
            one,
            retry.AttemptEnd(ok=False, message=f"cannot start: {error!r}", cause=Cause.NOT_STARTED),
        )
        return False

    async def _submit(self, jobs: list[BatchJob]) -> None:
        """Submit jobs whose data is there; malleable jobs get their size now."""
        free = [one for one in jobs if orders.malleable(one.spec)]
        if not free:
            await self._ask(jobs)
            return
        hello = await self._remote.ready()
        await self._fitting.fit(free, hello)
        unfit = [one.attempt for one in free if not await self._shaped(one)]
        ready = [one for one in jobs if one.attempt not in unfit]
        for some in orders.groups(ready, self._site):
            await self._ask(some)

    async def _shaped(self, one: BatchJob) -> bool:
        """Write the program of a job for its size; return whether it may continue."""
        while not self._held.cancelled(one):
            had = await self._try(one, self._data.shaped(one), "it waits")
            if had is not None:
                return had
        return False

    async def _ask(self, jobs: list[BatchJob]) -> None:
        """Submit jobs with equal requests as one array."""
        hello = await self._remote.ready()
        jobs = [one for one in jobs if not self._held.cancelled(one)]
        key = submission.new_key()
        ready, items = self._orders(jobs, hello.root, key)
        if not ready:
            return
        declared = {
            one.claim.job: [text.store_path(path) for path in paths]
            for one in ready
            if (paths := [*one.outputs.values(), *one.optional.values()])
        }
        if declared:
            await self._writer.run(lambda db: moves.declare(db, declared))
        works = [ArrayTask(place, *one.attempt) for place, one in enumerate(ready)]
        first = ready[0].spec
        order = orders.order_for(first, self._site, hello, key, len(ready), ready[0].fit)
        out = await self._driver.submit(orders.batch_of(first, self._site), order, works, items)
        for work in works:
            self._held.out[work.job, work.attempt] = (out, work)
        if late := [(out, work) for work in works if (work.job, work.attempt) in self._held.stops]:
            await self._driver.stop(late)

    def _orders(
        self, jobs: list[BatchJob], root: str, key: str
    ) -> tuple[list[BatchJob], list[dict[str, Any]]]:
        """Write the orders of jobs; those for which that cannot be done have ended."""
        ready: list[BatchJob] = []
        items: list[dict[str, Any]] = []
        for one in jobs:
            try:
                orders.check(one.spec, self._name, self._site)
                folders = ItemFolder(root, key, len(ready))
                items.append(job.order(one, folders, self._site, self._launch))
            except ODD as error:
                self._held.finish(
                    one,
                    retry.AttemptEnd(
                        ok=False, message=f"cannot start: {error}", cause=Cause.NOT_STARTED
                    ),
                )
                continue
            ready.append(one)
            paths = [*one.outputs.values(), *one.optional.values()]
            self._listener.started(one.claim, one.binding, paths)
        return ready, items

    async def _bring(self, one: BatchJob) -> bool:
        """Stage the inputs of a job; return whether it may continue."""
        ready = await self._held.while_wanted(one, self._persist(one))
        return not self._held.cancelled(one) and bool(ready)

    async def _persist(self, one: BatchJob) -> bool:
        while not self._held.cancelled(one):
            # All of a file may have to be read for it.
            if objection := await anyio.to_thread.run_sync(
                launch.objection, one.binding, one.spec.on_change
            ):
                self._held.finish(
                    one,
                    retry.AttemptEnd(
                        ok=False, message=objection, cause=Cause.INPUT, call_off=objection
                    ),
                )
                return False
            had = await self._try(one, self._have(one), "its data waits")
            if had is not None:
                return had
        return False

    async def _have(self, one: BatchJob) -> None:
        await self._remote.ready()
        await self._data.bring(one)

    async def _try(self, one: BatchJob, act: Awaitable[None], waits: str) -> bool | None:
        """Return whether a step succeeded; nothing if it must be retried."""
        try:
            await act
        except errors.Unavailable as error:
            await self._progress.say([one.attempt], f"{waits}: {error}")
            await asyncio.sleep(_AGAIN_S)
            return None
        except ODD as error:
            self._held.finish(
                one,
                retry.AttemptEnd(
                    ok=False, message=f"cannot start: {error}", cause=Cause.NOT_STARTED
                ),
            )
            return False
        return True

    async def items(self, one: Submission, key: str) -> list[dict[str, Any]]:
        """Return the orders of jobs, rewritten for another key."""
        live = {work.place: self._held.jobs.get((work.job, work.attempt)) for work in one.live}
        items = []
        for place in range(one.order.count):
            found = live.get(place)
            if found is None or not await self._bring(found):
                items.append(_EMPTY)
                continue
            try:
                folders = ItemFolder(one.root, key, place)
                items.append(job.order(found, folders, self._site, self._launch))
            except ODD as error:
                self._held.finish(
                    found,
                    retry.AttemptEnd(
                        ok=False, message=f"cannot start: {error}", cause=Cause.NOT_STARTED
                    ),
                )
                items.append(_EMPTY)
        return items

    # -- what the driver says --------------------------------------------------------------------

    def begun(self, works: list[tuple[Submission, ArrayTask]], words: str) -> None:
        """Note that jobs run."""
        del words
        self._held.begin([(work.job, work.attempt) for _, work in works])

    def taken(self, one: Submission) -> None:
        """Note that the batch system accepted jobs."""
        why = one.order.fit.why if one.order.fit else ""
        for words, attempts in self._waiting_in(one, why).items():
            self._beside.start(self._progress.progress(attempts, State.SUBMITTED, words))

    def said(self, one: Submission, words: str) -> None:
        """Note why jobs wait."""
        for told, attempts in self._waiting_in(one, words).items():
            self._beside.start(self._progress.say(attempts, told))

    def _waiting_in(self, one: Submission, words: str) -> dict[str, list[Attempt]]:
        """Group waiting attempts by their reason."""
        found: dict[str, list[Attempt]] = {}
        for work in one.live:
            if not work.began:
                told = one.say(self._name, work.words or words)
                found.setdefault(told, []).append((work.job, work.attempt))
        return found

    def over(self, one: Submission, work: ArrayTask, end: TaskEnd) -> None:
        """Note that a job is over at the site."""
        found = self._held.jobs.get((work.job, work.attempt))
        if found is None:
            self._beside.start(self._driver.forget([(one, work)]))
        else:
            self._beside.start(self._close(found, ItemFolder(one.root, one.key, work.place), end))

    async def _close(self, one: BatchJob, folders: ItemFolder, end: TaskEnd) -> None:
        try:
            closed = await self._results.close(one, folders, end)
        except Exception as error:  # noqa: BLE001 - whatever it is, the job ends
            # A job whose end is not recorded would stay for ever without a reason.
            _log.exception("job %s: its results cannot be fetched", one.key)
            message = f"its results cannot be brought back: {error!r}"
            closed = retry.AttemptEnd(ok=False, message=message, cause=Cause.LOST)
        self._held.finish(one, closed)

    # -- stop, and follow ------------------------------------------------------------------------

    def _stop(self, stops: Iterable[Stop]) -> None:
        """Stop jobs that were cancelled or preempted."""
        unstopped = self._held.jobs.keys() - self._held.stops.keys()
        fresh = [stop for stop in stops if (stop.job, stop.attempt) in unstopped]
        self._held.stop({(stop.job, stop.attempt): stop.words for stop in fresh})
        out = [self._held.out.get((stop.job, stop.attempt)) for stop in fresh]
        if known := [one for one in out if one is not None]:
            self._beside.start(self._driver.stop(known))

    async def _look(self) -> None:
        """Fetch logs periodically, and follow requests to drain the site."""
        since = 0.0
        while True:
            await anyio.sleep(_HEED_S)
            asked = await self._writer.run(lambda db: submissions.asked(db, self._name))
            if bool(asked) == self.place.taking:
                self._queue.change(functools.partial(self._open, not asked))
                self._queue.nudge(self.place.number)
            since += _HEED_S
            if since >= _FOLLOW_S:
                since = 0.0
                await self._follow()

    def _open(self, taking: bool, _ledger: TurnRecords, _db: Db, _now: float) -> None:  # noqa: FBT001
        self.place.taking = taking

    @property
    def _trouble(self) -> str:
        """Why a job waits; empty if the site has no trouble."""
        return f"its site has trouble: {self._told}" if self._told else ""

    async def _follow(self) -> None:
        """Fetch output of running jobs, and record why the others wait."""
        await self._explain()
        writing = [
            (one, ItemFolder(out.root, out.key, work.place))
            for attempt, (out, work) in self._held.out.items()
            if work.began and not work.over and (one := self._held.jobs.get(attempt))
        ]
        if writing and self._driver.remote.up:
            with contextlib.suppress(*ODD):
                await self._data.logs(writing)

    async def _explain(self) -> None:
        """Record the trouble of the site with each job that does not run, when it changes."""
        trouble = self._driver.remote.trouble or self._driver.trouble
        if trouble == self._told:
            return
        self._told = trouble
        by_words: dict[str, list[Attempt]] = {}
        for attempt in self._held.jobs:
            out, work = self._held.out.get(attempt, (None, None))
            if work is None or not work.began:
                usual = out.say(self._name, work.words) if out and work else ""
                by_words.setdefault(self._trouble or usual, []).append(attempt)
        for words, attempts in by_words.items():
            await self._progress.say(attempts, words)
