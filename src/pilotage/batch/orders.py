"""Orders for batch jobs, and the jobs that a site holds, with their changes since the last turn.

Orders are grouped into arrays; malleable jobs are fitted to free nodes.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import shlex
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from pilotage.base import errors, text, units
from pilotage.batch import job, submission
from pilotage.batch import malleable as shape
from pilotage.batch.driver import SubmissionDriver
from pilotage.batch.job import BatchJob
from pilotage.batch.login import HelperInfo
from pilotage.batch.malleable import Fit, Gap, QueueBounds, SizeRange
from pilotage.batch.model import SiteSettings
from pilotage.batch.submission import ArrayTask, Submission
from pilotage.batch.system import known
from pilotage.batch.system.model import BatchError, BatchOrder, Windows
from pilotage.job import moves, retry
from pilotage.job.model import JobSpec, Shape, State
from pilotage.job.outcome import Cause
from pilotage.match.queue import JobQueue
from pilotage.store import Writer

_T = TypeVar("_T")


class HeldJobs:
    """Jobs of one site."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """Call `changed` when there is something to record."""
        self._changed = changed
        self.jobs: dict[Attempt, BatchJob] = {}
        #: Where each attempt is out.
        self.out: dict[Attempt, tuple[Submission, ArrayTask]] = {}
        #: What has ended and begun since the last turn.
        self.ends: list[tuple[BatchJob, retry.AttemptEnd]] = []
        self.began: list[Attempt] = []
        #: Why attempts are to end.
        self.stops: dict[Attempt, str] = {}
        #: Attempts whose end has been reported.
        self._ended: set[Attempt] = set()
        #: What is under way for attempts, cancelled with them.
        self._under_way: dict[Attempt, asyncio.Task[Any]] = {}

    @property
    def stirred(self) -> bool:
        """Whether something has begun or ended since the last turn."""
        return bool(self.ends or self.began)

    def begin(self, attempts: list[Attempt]) -> None:
        """Note that attempts run."""
        self.began += attempts
        self._changed()

    def finish(self, one: BatchJob, end: retry.AttemptEnd) -> None:
        """Note how an attempt ended; the first report counts."""
        if one.attempt not in self._ended:
            self._ended.add(one.attempt)
            self.ends.append((one, end))
            self._changed()

    def stop(self, stops: Mapping[Attempt, str]) -> None:
        """Note why attempts are to end, and cancel what is under way for them."""
        self.stops |= stops
        for attempt in stops:
            if task := self._under_way.get(attempt):
                task.cancel()

    async def while_wanted(self, one: BatchJob, work: Coroutine[Any, Any, _T]) -> _T | None:
        """Run work for an attempt; return nothing if the attempt is cancelled meanwhile."""
        task: asyncio.Task[_T] = asyncio.create_task(work)
        self._under_way[one.attempt] = task
        try:
            return await task
        except asyncio.CancelledError:
            us = asyncio.current_task()
            if us is None or us.cancelling() or one.attempt not in self.stops:
                raise
            return None
        finally:
            self._under_way.pop(one.attempt, None)

    def cancelled(self, one: BatchJob) -> bool:
        """End a job that was cancelled before it was submitted; return whether it was."""
        words = self.stops.get(one.attempt)
        if words is not None:
            self.finish(
                one, retry.AttemptEnd(ok=False, message=words, cause=Cause.STOPPED, stopped=True)
            )
        return words is not None

    def leave(self, one: BatchJob) -> tuple[Submission, ArrayTask] | None:
        """Forget a job whose end is on disk; return its submission."""
        self.jobs.pop(one.attempt, None)
        self.stops.pop(one.attempt, None)
        self._ended.discard(one.attempt)
        return self.out.pop(one.attempt, None)


#: A job and the number of its attempt.
Attempt = tuple[int, int]


class ProgressWriter:
    """Records the progress of attempts in the store."""

    def __init__(self, writer: Writer, queue: JobQueue) -> None:
        """Use the clock of the queue."""
        self._writer = writer
        self._queue = queue

    async def progress(self, attempts: Sequence[Attempt], state: State, words: str = "") -> None:
        """Record the progress of attempts; states never go back."""
        now, some = self._queue.now(), list(attempts)
        await self._writer.run(lambda db: moves.progress(db, some, state, words, now))

    async def say(self, attempts: Sequence[Attempt], words: str) -> None:
        """Record why attempts wait."""
        rows = text.dump(list(attempts))
        if attempts:
            await self._writer.run(lambda db: db.run("job_say", rows=rows, reason=words))


#: Seconds that a batch job has beyond its payload, to write the evidence.
LONGER_S = 60.0


def groups(jobs: Iterable[BatchJob], site: SiteSettings) -> Iterator[list[BatchJob]]:
    """Group jobs with equal requests, up to the size of an array."""
    alike: dict[Any, list[BatchJob]] = {}
    for one in jobs:
        spec = one.spec
        shape = (spec.resources, spec.allocation, spec.via, spec.priority)
        alike.setdefault(shape, []).append(one)
    for some in alike.values():
        # A step is one process that waits for one job.
        alone = some[0].spec.via == "srun" or not known.arrays(
            batch_of(some[0].spec, site), site.plugin
        )
        size = 1 if alone else site.array
        for at in range(0, len(some), size):
            yield some[at : at + size]


def batch_of(spec: JobSpec, site: SiteSettings) -> str:
    """Name the batch system that a job goes to."""
    return "local" if spec.via == "direct" else site.batch


def check(spec: JobSpec, name: str, site: SiteSettings) -> None:
    """Refuse what the site's file does not allow."""
    for word in spec.allocation.extra:
        if word not in site.allow and word.partition("=")[0] not in site.allow:
            message = f"the site {name} does not allow the option {word}"
            raise errors.Denied(message, hint=f"sites/{name}.toml says which: `allow`")
    needs, asked = spec.resources, spec.allocation
    bounds = (
        ("cores", needs.cpus * asked.nodes * asked.tasks, site.cpus),
        ("bytes of memory", needs.memory or 0, units.size(site.memory) if site.memory else 0),
        ("GPUs", needs.gpus, site.gpus or (0 if needs.gpus == 0 else -1)),
    )
    for what, wanted, most in bounds:
        if most and wanted > most:
            message = f"the site {name} gives a job at most {max(0, most)} {what}, not {wanted}"
            raise errors.Denied(message, hint=f"sites/{name}.toml sets these limits")


def order_for(
    spec: JobSpec,
    site: SiteSettings,
    hello: HelperInfo,
    key: str,
    count: int,
    fit: Fit | None = None,
) -> BatchOrder:
    """Return the order for `count` equal jobs."""
    asked, needs, defaults = spec.allocation, spec.resources, site.defaults
    usual = units.seconds(defaults.time) if defaults.time else None
    folder = f"{hello.root}/s/{key}"
    program = f"{hello.root}/bin/{hello.version}.pyz"
    # Nothing of the user's own Python is wanted, and looking for it takes time.
    words = shlex.join([site.python, "-I", "-S", program, "job", folder])
    return BatchOrder(
        key=key, script=f"#!/bin/sh\nexec {words}\n", folder=folder, count=count,
        nodes=asked.nodes, tasks=asked.tasks, cpus=needs.cpus, memory=needs.memory,
        gpus=needs.gpus, time=usual if needs.time is None else needs.time + LONGER_S,
        queue=asked.queue or defaults.queue, account=asked.account or defaults.account,
        qos=asked.qos or defaults.qos, constraint=asked.constraint or defaults.constraint,
        reservation=asked.reservation or defaults.reservation, extra=asked.extra,
        step=spec.via == "srun", fit=fit,
    )  # fmt: skip


_log = logging.getLogger("pilotage.batch")
#: How long one look counts, in seconds, and how long if something has ended since.
_LOOK_S, _BRIEF_S = 5.0, 1.0
#: Shapes of a job that are tried, and trials that a look is good for.
_SHAPES, _TRIALS = 3, 12
#: A start at most this much later than expected, in seconds, counts as on time.
_SLACK_S = 30.0
#: Fields of an order that say which nodes can run it.
_ALIKE = ("queue", "tasks", "cpus", "memory", "gpus", "constraint", "reservation", "extra",
          "account", "qos")  # fmt: skip


def malleable(spec: JobSpec) -> bool:
    """Return whether a job may run in several sizes."""
    return spec.allocation.shape != Shape()


class _Look(msgspec.Struct):
    """The state of a batch system at one time, and gaps and trials computed from it."""

    at: float
    #: Nothing means that the batch system does not report free nodes.
    batch: Windows | None = None
    seen: Any = None
    gaps: dict[Hashable, list[Gap]] = {}
    #: When orders would start; nothing means that they were refused.
    trials: dict[Hashable, float | None] = {}


class Fitting:
    """Chooses sizes for the malleable jobs of one site."""

    def __init__(self, driver: SubmissionDriver, held: HeldJobs) -> None:
        """Use the connection of a driver."""
        self._driver = driver
        self._held = held
        self._site = driver.remote.site
        self._turn = asyncio.Lock()
        self._looks: dict[str, _Look] = {}
        #: What attempts have got that the batch system may not show yet.
        self._booked: dict[Attempt, tuple[Fit, float]] = {}

    async def fit(self, jobs: Sequence[BatchJob], hello: HelperInfo) -> Sequence[BatchJob]:
        """Give each job its shape; return them."""
        async with self._turn:
            for one in jobs:
                fit = await self._choose(one, hello)
                _log.info("job %s: %s", one.key, fit.why)
                job.shape(one, fit)
        return jobs

    async def _choose(self, one: BatchJob, hello: HelperInfo) -> Fit:
        spec = one.spec
        order = order_for(spec, self._site, hello, submission.new_key(), 1)
        look = await self._look(batch_of(spec, self._site))
        if look.batch is None:
            return _told(spec, shape.choose(self._ask(spec, QueueBounds()), None, 0.0))
        bounds = look.batch.bounds(look.seen, order)
        ask = shape.bounded(self._ask(spec, bounds), bounds)
        gaps = self._gaps(look, look.batch, order)
        now = look.seen.now + self._driver.steady() - look.at
        fits = shape.best(ask, gaps, now, count=_SHAPES)
        fit = await self._proved(look, order, ask, fits, now) if fits else shape.least(ask)
        self._book(one, fit, ask.longer)
        return _told(spec, fit)

    def _ask(self, spec: JobSpec, bounds: QueueBounds) -> SizeRange:
        """Return the sizes of a job; without a time of its own it has the site's or the queue's."""
        wanted, nodes, time = spec.allocation.shape, spec.allocation.nodes, spec.resources.time
        usual = self._site.defaults.time
        most = time or (units.seconds(usual) if usual else bounds.usual)
        return SizeRange(
            nodes_least=min(nodes, wanted.nodes_least or nodes), nodes_most=nodes,
            time_least=min(most, wanted.time_least or most), time_most=most, work=wanted.work,
            longer=LONGER_S if time or wanted.time_least else 0.0,
        )  # fmt: skip

    # -- one look --------------------------------------------------------------------------------

    async def _look(self, name: str) -> _Look:
        """See what is free, or use what was seen a moment ago."""
        now = self._driver.steady()
        known = self._looks.get(name)
        ended = any(key not in self._held.jobs for key in self._booked)
        if known is not None and now - known.at < (_BRIEF_S if ended else _LOOK_S):
            return known
        look = self._looks[name] = _Look(now)
        self._booked = {key: one for key, one in self._booked.items() if not self._listed(key)}
        commands = self._driver.commands
        batch = commands.shows(name)
        if batch is not None:
            try:
                look.seen = await commands.see(batch)
                look.at, look.batch = self._driver.steady(), batch
            except (errors.PilotageError, BatchError) as error:
                _log.warning(
                    "site %s: the free capacity is unknown: %s", self._driver.remote.name, error
                )
        return look

    def _listed(self, attempt: Attempt) -> bool:
        """Return whether a listing has what an attempt got, or nothing is to come of it."""
        out = self._held.out.get(attempt)
        return out[0].known if out else attempt not in self._held.jobs

    def _gaps(self, look: _Look, batch: Windows, order: BatchOrder) -> list[Gap]:
        kind = _kind(order)
        if kind not in look.gaps:
            found = batch.gaps(look.seen, order)
            booked = self._booked.values()
            look.gaps[kind] = functools.reduce(
                lambda left, one: shape.book(left, *one), booked, found
            )
        return look.gaps[kind]

    def _book(self, one: BatchJob, fit: Fit, longer: float) -> None:
        """Book what a job has got, so that others do not count on it."""
        self._booked[one.attempt] = fit, longer
        for look in self._looks.values():
            look.gaps = {kind: shape.book(gaps, fit, longer) for kind, gaps in look.gaps.items()}

    # -- trials ----------------------------------------------------------------------------------

    async def _proved(
        self, look: _Look, order: BatchOrder, ask: SizeRange, fits: Sequence[Fit], now: float
    ) -> Fit:
        """Choose the first size that starts as expected, or else the one that starts first.

        Of later starts only the listings are known, and if others wait the batch
        system does not tell of gaps: then it is asked only whether it takes an order at all.
        """
        later: list[tuple[float, Fit]] = []
        for fit in fits:
            thought = now if fit.start is None else fit.start
            start: float | None = thought
            if thought <= now:
                limit = _limit(fit.time, ask.longer)
                tried = msgspec.structs.replace(order, nodes=fit.nodes, time=limit)
                start = await self._start(look, tried, thought)
            if start is None:
                continue
            if look.seen.waits or start <= thought + _SLACK_S:
                return fit
            later.append((start, fit))
        if not later:
            return shape.least(ask)
        start, fit = min(later, key=lambda one: one[0])
        words = shape.say(fit.nodes, fit.time or math.inf)
        why = f"{words}, to start in {units.for_people(max(0.0, start - now))}"
        return msgspec.structs.replace(fit, start=start, why=why)

    async def _start(self, look: _Look, order: BatchOrder, thought: float) -> float | None:
        """Find out when an order would start; nothing if it is refused."""
        kind = (_kind(order), order.nodes, order.time)
        if look.batch is None or (kind not in look.trials and len(look.trials) >= _TRIALS):
            return thought
        if kind not in look.trials:
            try:
                look.trials[kind] = await self._driver.commands.trial(look.batch, order)
            except BatchError as error:
                _log.info("site %s: %s", self._driver.remote.name, error)
                look.trials[kind] = None
            except errors.PilotageError:
                return thought
        return look.trials[kind]


def _kind(order: BatchOrder) -> Hashable:
    return tuple(getattr(order, name) for name in _ALIKE)


def _limit(time: float | None, longer: float) -> float | None:
    return None if time is None or math.isinf(time) else time + longer


def _told(spec: JobSpec, fit: Fit) -> Fit:
    """Leave the time to the queue where it was left to it before."""
    ranged = spec.allocation.shape.time_least or spec.resources.time
    time = fit.time if ranged and fit.time and not math.isinf(fit.time) else None
    return msgspec.structs.replace(fit, time=time)
