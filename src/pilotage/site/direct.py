"""The batch queue of a site as a place: jobs that it gets become batch jobs of their own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import shlex
from asyncio import wrap_future
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import anyio
import msgspec

from pilotage import crash, errors, text, units
from pilotage.job import moves, records, retry
from pilotage.job.bulk import Ended
from pilotage.job.model import JobSpec, State
from pilotage.match.cluster import QUEUE
from pilotage.match.place import Place, queue_mark
from pilotage.match.queue import Queue
from pilotage.match.turn import Ledger
from pilotage.match.words import Granted, Stop
from pilotage.site import ending, guest, launch, submission, unchanged
from pilotage.site import records as submissions
from pilotage.site.batch.model import Order
from pilotage.site.driver import Driver, End
from pilotage.site.guest import Guest, Room
from pilotage.site.local import Listener
from pilotage.site.model import Site
from pilotage.site.submission import Submission, Work
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.site")
_T = TypeVar("_T")
_ANY = 1 << 40
#: Ends and starts that come within this time are written down together, in seconds.
_BLINK_S = 0.02
_AGAIN_S = 5.0
#: How often what running jobs write is looked at, in seconds.
_FOLLOW_S = 2.0


class Data(Protocol):
    """Brings what jobs read to the site, and what they leave home."""

    async def bring(self, one: Guest) -> None:
        """Have all that a job reads at the site, and note in the guest what it is."""

    async def home(self, one: Guest, room: Room, found: dict[str, Any]) -> None:
        """Bring home what a job has left."""

    async def logs(self, one: Guest, room: Room) -> None:
        """Bring home what a job has written to its two streams so far."""

    async def leave(self, one: Guest) -> None:
        """Give up what was held for a job."""


def place_of(name: str, number: int, site: Site) -> Place:
    """Describe the batch queue of a site to the matchmaker."""
    memory = units.size(site.memory) if site.memory else _ANY
    cpus = site.cpus or _ANY
    attributes = {
        QUEUE: True, "site": name, "batch": site.batch, "cpus": cpus, "memory": memory,
        "gpus": site.gpus, "pool": "", "host": name,
    }  # fmt: skip
    place = Place(
        -1 - number, name, attributes, cpus=_ANY, memory=_ANY * 1024, gpus=_ANY if site.gpus else 0,
        disk=_ANY * 1024, until=math.inf,
    )  # fmt: skip
    place.slots = site.jobs
    place.begins = State.STAGING_IN
    place.holder = queue_mark(name)
    place.marks = {place.holder}
    return place


class Direct:
    """Takes jobs for a site, has them submitted, and tells how they ended."""

    def __init__(
        self, name: str, driver: Driver, queue: Queue, writer: Writer, place: launch.Place,
        data: Data, listener: Listener,
    ) -> None:  # fmt: skip
        """Get ready; nothing happens before `run`."""
        self._name = name
        self._driver = driver
        self._site = driver.remote.site
        self._queue = queue
        self._writer = writer
        self._launch = place
        self._data = data
        self._listener = listener
        self.place: Place
        self._guests: dict[tuple[int, int], Guest] = {}
        #: Where each attempt is out.
        self._out: dict[tuple[int, int], tuple[Submission, Work]] = {}
        self._ends: list[tuple[Guest, retry.End]] = []
        self._began: list[tuple[int, int]] = []
        self._stops: dict[tuple[int, int], str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = False
        driver.join(self, pilots=False)

    async def run(self) -> None:
        """Take jobs until cancelled."""
        await self._join()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow)
                while True:
                    await self._turn()
        finally:
            for task in self._tasks:
                task.cancel()

    # -- before anything -------------------------------------------------------------------------

    async def _join(self) -> None:
        """Tell the matchmaker of this queue, and find what an earlier process left here."""
        found: list[tuple[int, list[tuple[Any, ...]]]] = []

        def join(ledger: Ledger, db: Db, _now: float) -> None:
            number = submissions.number(db, self._name)
            self.place = place_of(self._name, number, self._site)
            self.place.taking = not submissions.asked(db, self._name)
            found.append((number, db.rows("site_claims", holder=self.place.holder)))
            ledger.join(self.place)

        await self._queue.do(join)
        for row in found[-1][1]:
            claim = moves.Claim(*row[:7])
            self._guests[claim.job, claim.attempt] = await self._guest(claim)
        loose = dict(self._guests)
        for one in await self._driver.load():
            for work in list(one.works.values()):
                if work.pilot:
                    continue
                if loose.pop((work.job, work.attempt), None) is None:
                    # Its end is on disk already, only the site has not been told.
                    self._spawn(self._driver.forget([(one, work)]))
                else:
                    self._out[work.job, work.attempt] = (one, work)
        if loose:
            # These were claimed, and died with us before they were submitted.
            self._begin(list(loose.values()))

    async def _guest(self, claim: moves.Claim) -> Guest:
        body = await self._do(lambda db: db.value("spec_body", id=claim.spec))
        spec = records.read_spec(body)
        binding = records.read_binding(claim.binding)
        return Guest(claim, spec, binding, spec.base or self._launch.base)

    # -- one turn --------------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Say what ended and take what comes next, in one transaction."""
        ends, self._ends = self._ends, []
        began, self._began = self._began, []
        if began:
            await self._progress(began, State.RUNNING)
        ended = [Ended(one.claim.job, one.claim.attempt, one.claim.spec, end) for one, end in ends]
        self._waiting = not ended
        answer = self._queue.exchange(self.place.number, ended, park=not ended)
        if self._waiting and (self._ends or self._began):
            self._queue.nudge(self.place.number)
        granted = await answer
        self._waiting = False
        if ends:
            await self._let_go([one for one, _ in ends])
        if granted.claims:
            self._take(granted)
        self._stop(granted.stops)

    def _poke(self) -> None:
        """Have what is new written down in a moment, with what else comes until then."""
        asyncio.get_running_loop().call_later(_BLINK_S, self._nudge)

    def _nudge(self) -> None:
        if self._waiting and (self._ends or self._began):
            self._waiting = False
            self._queue.nudge(self.place.number)

    async def _let_go(self, ended: Sequence[Guest]) -> None:
        """Forget jobs whose ends are on disk, here and at the site."""
        crash.point("site.finished")
        out = []
        for one in ended:
            self._guests.pop(one.attempt, None)
            self._stops.pop(one.attempt, None)
            if found := self._out.pop(one.attempt, None):
                out.append(found)
            if one.claim.rule:
                self._listener.ended(one.claim.rule, one.claim.job)
            self._spawn(self._data.leave(one))
        if out:
            self._spawn(self._driver.forget(out))

    # -- to the site -----------------------------------------------------------------------------

    def _take(self, granted: Granted) -> None:
        fresh = []
        for claim in granted.claims:
            spec = granted.specs[claim.spec]
            binding = records.read_binding(claim.binding)
            one = Guest(claim, spec, binding, spec.base or self._launch.base)
            self._guests[one.attempt] = one
            fresh.append(one)
        self._begin(fresh)

    def _begin(self, guests: list[Guest]) -> None:
        """Have jobs submitted, those that ask for the same together."""
        alike: dict[Any, list[Guest]] = {}
        for one in guests:
            shape = (one.spec.resources, one.spec.allocation, one.spec.via, one.spec.priority)
            alike.setdefault(shape, []).append(one)
        for some in alike.values():
            most = self._site.array if some[0].spec.via != "srun" else 1
            for at in range(0, len(some), most):
                self._spawn(self._send(some[at : at + most]))

    async def _send(self, guests: list[Guest]) -> None:
        """Bring the data of jobs to the site, and submit them."""
        if any(one.spec.data == "mounted" or one.binding.path or one.spec.inputs for one in guests):
            results = await asyncio.gather(*(self._bring(one) for one in guests))
            guests = [one for one, ready in zip(guests, results, strict=True) if ready]
        guests = [one for one in guests if not self._called_off(one)]
        if not guests:
            return
        root = (await self._driver.remote.ready()).root
        key = submission.new_key()
        items: list[dict[str, Any]] = []
        ready: list[Guest] = []
        outputs: dict[int, list[str]] = {}
        for one in guests:
            room = Room(root, key, len(ready))
            try:
                self._check(one.spec)
                items.append(guest.order(one, room, self._site, self._launch))
            except (errors.PilotageError, OSError) as error:
                self._finish(one, retry.End(ok=False, message=f"cannot start: {error}"))
                continue
            ready.append(one)
            declared = [*one.outputs.values(), *one.optional.values()]
            self._listener.started(one.claim, one.binding, declared)
            if declared:
                outputs[one.claim.job] = [text.store_path(path) for path in declared]
        if not ready:
            return
        if outputs:
            await self._do(lambda db: moves.declare(db, outputs))
        works = [Work(place, *one.attempt) for place, one in enumerate(ready)]
        first = ready[0].spec
        batch = "local" if first.via == "direct" else self._site.batch
        order = self._order(first, key, root, len(ready))
        out = await self._driver.submit(batch, order, works, items)
        for work in works:
            self._out[work.job, work.attempt] = (out, work)
            if self._stops.get((work.job, work.attempt)):
                self._spawn(self._driver.stop([(out, work)]))

    async def _bring(self, one: Guest) -> bool:
        """Have what a job reads at the site; say whether the job may go on."""
        while not self._called_off(one):
            if objection := unchanged.objection(one.binding, one.spec.on_change):
                self._finish(one, retry.End(ok=False, message=objection, call_off=objection))
                return False
            try:
                await self._driver.remote.ready()
                await self._data.bring(one)
            except errors.Unavailable as error:
                await self._say([one.attempt], f"its data waits: {error}")
                await asyncio.sleep(_AGAIN_S)
            except (errors.PilotageError, OSError) as error:
                self._finish(one, retry.End(ok=False, message=f"cannot start: {error}"))
                return False
            else:
                return True
        return False

    def _check(self, spec: JobSpec) -> None:
        """Refuse what the site's file does not allow."""
        for word in spec.allocation.extra:
            if word not in self._site.allow and word.partition("=")[0] not in self._site.allow:
                message = f"the site {self._name} does not allow the option {word}"
                raise errors.Denied(message, hint=f"sites/{self._name}.toml says which: `allow`")

    def _order(self, spec: JobSpec, key: str, root: str, count: int) -> Order:
        site, asked, needs = self._site, spec.allocation, spec.resources
        defaults = site.defaults
        usual = units.seconds(defaults.time) if defaults.time else None
        program = f"{root}/bin/{self._driver.remote.hello.version}.pyz"
        words = shlex.join([site.python, program, "job", f"{root}/s/{key}"])
        return Order(
            key=key, script=f"#!/bin/sh\nexec {words}\n", folder=f"{root}/s/{key}", count=count,
            nodes=asked.nodes, tasks=asked.tasks, cpus=needs.cpus, memory=needs.memory,
            gpus=needs.gpus, time=_longer(needs.time) or usual,
            queue=asked.queue or defaults.queue, account=asked.account or defaults.account,
            qos=asked.qos or defaults.qos, constraint=asked.constraint or defaults.constraint,
            reservation=asked.reservation or defaults.reservation, extra=asked.extra,
            step=spec.via == "srun",
        )  # fmt: skip

    # -- what the driver says --------------------------------------------------------------------

    def begun(self, works: list[tuple[Submission, Work]], words: str) -> None:
        """Hear that jobs run."""
        del words
        self._began += [(work.job, work.attempt) for _, work in works]
        self._poke()

    def taken(self, one: Submission) -> None:
        """Hear that the batch system has jobs."""
        attempts = [(work.job, work.attempt) for work in one.works.values() if not work.began]
        words = f"{one.batch} job {one.number}" if one.number else f"a {one.batch} job"
        if attempts:
            self._spawn(self._progress(attempts, State.SUBMITTED, words))

    def said(self, one: Submission, words: str) -> None:
        """Hear what the batch system says of jobs that wait there."""
        attempts = [(work.job, work.attempt) for work in one.works.values() if not work.began]
        number = f"{one.batch} job {one.number}: " if one.number else ""
        self._spawn(self._say(attempts, f"{number}{words}"))

    def over(self, one: Submission, work: Work, end: End) -> None:
        """Hear that a job is over at the site."""
        found = self._guests.get((work.job, work.attempt))
        if found is None:
            self._spawn(self._driver.forget([(one, work)]))
        else:
            self._spawn(self._close(found, one, work, end))

    async def items(self, one: Submission, key: str) -> list[dict[str, Any]]:
        """Write the orders of jobs anew, under another key."""
        root = (await self._driver.remote.ready()).root
        items = []
        for place in range(one.order.count):
            work = one.works.get(place)
            found = self._guests.get((work.job, work.attempt)) if work else None
            if work is not None and found is not None and not found.inputs:
                await self._bring(found)
            items.append(
                guest.order(found, Room(root, key, place), self._site, self._launch)
                if found is not None
                else {"launch": None, "inputs": []}
            )
        return items

    async def _close(self, one: Guest, out: Submission, work: Work, end: End) -> None:
        """Bring home what a job left, and say how it ended."""
        root = (await self._driver.remote.ready()).root
        room = Room(root, out.key, work.place)
        stopped = self._stops.get(one.attempt, "")
        verdict = ending.judge(one, end, stopped)
        while end.evidence is not None:
            try:
                await self._data.logs(one, room)
                if verdict.ok and not verdict.missing and (one.outputs or one.optional):
                    await self._progress([one.attempt], State.STAGING_OUT)
                    await self._data.home(one, room, end.evidence["outputs"])
                    crash.point("site.home")
                break
            except errors.Unavailable as error:
                await self._say([one.attempt], f"its results wait: {error}")
                await asyncio.sleep(_AGAIN_S)
                await self._driver.remote.ready()
            except (errors.PilotageError, OSError) as error:
                message = f"its results cannot be brought home: {error}"
                verdict = msgspec.structs.replace(verdict, ok=False, message=message)
                break
        self._finish(one, verdict)

    def _finish(self, one: Guest, end: retry.End) -> None:
        self._ends.append((one, end))
        self._poke()

    # -- stop, and follow ------------------------------------------------------------------------

    def _stop(self, stops: Iterable[Stop]) -> None:
        """End the jobs that a person or the matchmaker wants ended."""
        ending_ = []
        for stop in stops:
            attempt = (stop.job, stop.attempt)
            if attempt not in self._guests or attempt in self._stops:
                continue
            self._stops[attempt] = stop.words
            if found := self._out.get(attempt):
                ending_.append(found)
        if ending_:
            self._spawn(self._driver.stop(ending_))

    def _called_off(self, one: Guest) -> bool:
        """End a job that was called off before it was submitted."""
        words = self._stops.get(one.attempt)
        if words is None:
            return False
        if not any(held is one for held, _ in self._ends):
            self._finish(one, retry.End(ok=False, message=words, stopped=True))
        return True

    async def _follow(self) -> None:
        """Bring home what running jobs write, and hear whether the site is to take more."""
        while True:
            await anyio.sleep(_FOLLOW_S)
            asked = await self._do(lambda db: submissions.asked(db, self._name))
            if bool(asked) == self.place.taking:
                self._queue.change(functools.partial(self._open, not asked))
                self._queue.nudge(self.place.number)
            for attempt, (out, work) in list(self._out.items()):
                one = self._guests.get(attempt)
                if one is not None and work.began and self._driver.remote.up:
                    with contextlib.suppress(errors.PilotageError):
                        room = Room(self._driver.remote.hello.root, out.key, work.place)
                        await self._data.logs(one, room)

    def _open(self, taking: bool, _ledger: Ledger, _db: Db, _now: float) -> None:  # noqa: FBT001
        self.place.taking = taking

    async def _progress(
        self, attempts: list[tuple[int, int]], state: State, words: str = ""
    ) -> None:
        now = self._queue.now()
        await self._do(lambda db: moves.progress(db, attempts, state, words, now))

    async def _say(self, attempts: list[tuple[int, int]], words: str) -> None:
        """Let people see why jobs wait."""
        rows = text.dump(attempts)
        await self._do(lambda db: db.run("job_say", rows=rows, reason=words))

    async def _do(self, step: Callable[[Db], _T]) -> _T:
        return await wrap_future(self._writer.submit(step))

    def _spawn(self, work: Any) -> None:  # noqa: ANN401 - a coroutine of any kind
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("site %s: %s", self._name, error, exc_info=error)


def _longer(seconds: float | None) -> float | None:
    """Give the batch job a minute more than its payload, so that the evidence can be written."""
    return None if seconds is None else seconds + 60.0
