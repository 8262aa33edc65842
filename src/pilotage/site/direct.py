"""The batch queue of a site as a place: jobs that it gets become batch jobs of their own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from asyncio import wrap_future
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

import anyio

from pilotage import crash, errors, text
from pilotage.job import moves, records, retry
from pilotage.job.bulk import Ended
from pilotage.job.model import State
from pilotage.match.place import Place
from pilotage.match.queue import Queue
from pilotage.match.turn import Ledger
from pilotage.match.words import Granted, Stop
from pilotage.site import guest, launch, offer, ordering, submission, unchanged
from pilotage.site import records as submissions
from pilotage.site.driver import Driver
from pilotage.site.guest import Guest, Room
from pilotage.site.homing import Data, Homing
from pilotage.site.local import Listener
from pilotage.site.party import End
from pilotage.site.submission import Submission, Work
from pilotage.site.telling import Attempt, Telling
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.site")
_T = TypeVar("_T")
#: Ends and starts that come within this time are written down together, in seconds.
_BLINK_S = 0.02
_AGAIN_S = 5.0
#: How often what running jobs write is looked at, in seconds.
_FOLLOW_S = 2.0
#: An item of an order that nobody may run.
_EMPTY: dict[str, Any] = {"launch": None, "inputs": []}


class Direct:
    """Takes jobs for a site, has them submitted, and tells how they ended."""

    def __init__(
        self, name: str, driver: Driver, queue: Queue, writer: Writer, place: launch.Place,
        data: Data, listener: Listener,
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
        self._telling = Telling(writer, queue)
        self._homing = Homing(driver.remote, data, self._telling)
        self.place: Place
        self._guests: dict[Attempt, Guest] = {}
        #: Where each attempt is out.
        self._out: dict[Attempt, tuple[Submission, Work]] = {}
        self._ends: list[tuple[Guest, retry.End]] = []
        #: Attempts whose end has been told, once.
        self._ended: set[Attempt] = set()
        self._began: list[Attempt] = []
        self._stops: dict[Attempt, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = False
        #: What people were last told is wrong with the site.
        self._told = ""
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
            # What is at the site goes on there, and is adopted by the next process.
            for task in self._tasks:
                task.cancel()

    # -- before anything -------------------------------------------------------------------------

    async def _join(self) -> None:
        """Tell the matchmaker of this queue, and find what an earlier process left here."""
        found: list[list[tuple[Any, ...]]] = []

        def join(ledger: Ledger, db: Db, _now: float) -> None:
            number = submissions.number(db, self._name)
            self.place = offer.place_of(self._name, number, self._site)
            self.place.taking = not submissions.asked(db, self._name)
            found.append(db.rows("site_claims", holder=self.place.holder))
            ledger.join(self.place)

        await self._queue.do(join)
        for row in found[-1]:
            one = await self._guest(moves.Claim(*row[:7]))
            self._guests[one.attempt] = one
        loose = dict(self._guests)
        for out in await self._driver.load():
            for work in [work for work in out.works.values() if not work.pilot]:
                adopted = loose.pop((work.job, work.attempt), None)
                if adopted is None:
                    # Its end is on disk already, only the site has not been told.
                    self._spawn(self._driver.forget([(out, work)]))
                else:
                    self._out[adopted.attempt] = (out, work)
                    self._adopt(adopted, Room(out.root, out.key, work.place))
        # These were claimed, and what claimed them died before it had written the intent down.
        self._begin(list(loose.values()))

    async def _guest(self, claim: moves.Claim) -> Guest:
        body = await self._do(lambda db: db.value("spec_body", id=claim.spec))
        spec = records.read_spec(body)
        binding = records.read_binding(claim.binding)
        return Guest(claim, spec, binding, spec.base or self._launch.base)

    def _adopt(self, one: Guest, room: Room) -> None:
        """Find out anew what a job is to leave; it was ordered by an earlier process."""
        try:
            guest.order(one, room, self._site, self._launch)
        except (errors.PilotageError, OSError) as error:
            _log.warning("job %s: its outputs cannot be named any more: %s", one.key, error)

    # -- one turn --------------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Say what ended and take what comes next, in one transaction."""
        ends, self._ends = self._ends, []
        began, self._began = self._began, []
        if began:
            await self._telling.progress(began, State.RUNNING)
        ended = [Ended(one.claim.job, one.claim.attempt, one.claim.spec, end) for one, end in ends]
        self._waiting = not ended
        answer = self._queue.exchange(self.place.number, ended, park=not ended)
        if self._waiting and (self._ends or self._began):
            self._queue.nudge(self.place.number)
        granted = await answer
        self._waiting = False
        if ends:
            self._let_go([one for one, _ in ends])
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

    def _finish(self, one: Guest, end: retry.End) -> None:
        if one.attempt not in self._ended:
            self._ended.add(one.attempt)
            self._ends.append((one, end))
            self._poke()

    def _let_go(self, ended: Sequence[Guest]) -> None:
        """Forget jobs whose ends are on disk, here and at the site."""
        crash.point("site.finished")
        out = []
        for one in ended:
            self._guests.pop(one.attempt, None)
            self._stops.pop(one.attempt, None)
            self._ended.discard(one.attempt)
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
        for some in ordering.groups(guests, self._site):
            self._spawn(self._send(some))

    async def _send(self, guests: list[Guest]) -> None:
        """Bring the data of jobs to the site, and submit them."""
        if any(guest.brings(one) for one in guests):
            results = await asyncio.gather(*(self._bring(one) for one in guests))
            guests = [one for one, ready in zip(guests, results, strict=True) if ready]
        hello = await self._remote.ready()
        guests = [one for one in guests if not self._called_off(one)]
        key = submission.new_key()
        ready, items = self._orders(guests, hello.root, key)
        if not ready:
            return
        declared = {
            one.claim.job: [text.store_path(path) for path in paths]
            for one in ready
            if (paths := [*one.outputs.values(), *one.optional.values()])
        }
        if declared:
            await self._do(lambda db: moves.declare(db, declared))
        works = [Work(place, *one.attempt) for place, one in enumerate(ready)]
        first = ready[0].spec
        order = ordering.order(first, self._site, hello, key, len(ready))
        out = await self._driver.submit(ordering.batch(first, self._site), order, works, items)
        for work in works:
            self._out[work.job, work.attempt] = (out, work)
        if late := [(out, work) for work in works if (work.job, work.attempt) in self._stops]:
            await self._driver.stop(late)

    def _orders(
        self, guests: list[Guest], root: str, key: str
    ) -> tuple[list[Guest], list[dict[str, Any]]]:
        """Write the orders of jobs; those for which that cannot be done have ended."""
        ready: list[Guest] = []
        items: list[dict[str, Any]] = []
        for one in guests:
            try:
                ordering.check(one.spec, self._name, self._site)
                room = Room(root, key, len(ready))
                items.append(guest.order(one, room, self._site, self._launch))
            except (errors.PilotageError, OSError) as error:
                self._finish(one, retry.End(ok=False, message=f"cannot start: {error}"))
                continue
            ready.append(one)
            paths = [*one.outputs.values(), *one.optional.values()]
            self._listener.started(one.claim, one.binding, paths)
        return ready, items

    async def _bring(self, one: Guest) -> bool:
        """Have what a job reads at the site; say whether the job may go on."""
        while not self._called_off(one):
            if objection := unchanged.objection(one.binding, one.spec.on_change):
                self._finish(one, retry.End(ok=False, message=objection, call_off=objection))
                return False
            try:
                await self._remote.ready()
                await self._data.bring(one)
            except errors.Unavailable as error:
                await self._telling.say([one.attempt], f"its data waits: {error}")
                await asyncio.sleep(_AGAIN_S)
            except (errors.PilotageError, OSError) as error:
                self._finish(one, retry.End(ok=False, message=f"cannot start: {error}"))
                return False
            else:
                return True
        return False

    # -- what the driver says --------------------------------------------------------------------

    def begun(self, works: list[tuple[Submission, Work]], words: str) -> None:
        """Hear that jobs run."""
        del words
        self._began += [(work.job, work.attempt) for _, work in works]
        self._poke()

    def taken(self, one: Submission) -> None:
        """Hear that the batch system has jobs."""
        if attempts := [(work.job, work.attempt) for work in one.live if not work.began]:
            self._spawn(self._telling.progress(attempts, State.SUBMITTED, _name(one)))

    def said(self, one: Submission, words: str) -> None:
        """Hear what is said of jobs that wait to run."""
        by_words: dict[str, list[Attempt]] = {}
        for work in one.live:
            if not work.began:
                by_words.setdefault(work.words or words, []).append((work.job, work.attempt))
        known = f"{_name(one)}: " if one.known else ""
        for said, attempts in by_words.items():
            self._spawn(self._telling.say(attempts, f"{known}{said}"))

    def over(self, one: Submission, work: Work, end: End) -> None:
        """Hear that a job is over at the site."""
        found = self._guests.get((work.job, work.attempt))
        if found is None:
            self._spawn(self._driver.forget([(one, work)]))
        else:
            self._spawn(self._close(found, Room(one.root, one.key, work.place), end))

    async def items(self, one: Submission, key: str) -> list[dict[str, Any]]:
        """Write the orders of jobs anew, under another key."""
        live = {work.place: self._guests.get((work.job, work.attempt)) for work in one.live}
        items = []
        for place in range(one.order.count):
            found = live.get(place)
            if found is None or not await self._bring(found):
                items.append(_EMPTY)
                continue
            items.append(guest.order(found, Room(one.root, key, place), self._site, self._launch))
        return items

    async def _close(self, one: Guest, room: Room, end: End) -> None:
        stopping = self._stops.get(one.attempt, "")
        self._finish(one, await self._homing.close(one, room, end, stopping))

    # -- stop, and follow ------------------------------------------------------------------------

    def _stop(self, stops: Iterable[Stop]) -> None:
        """End the jobs that a person or the matchmaker wants ended."""
        fresh = [
            stop for stop in stops
            if (stop.job, stop.attempt) in self._guests.keys() - self._stops.keys()
        ]  # fmt: skip
        self._stops |= {(stop.job, stop.attempt): stop.words for stop in fresh}
        out = [self._out.get((stop.job, stop.attempt)) for stop in fresh]
        if known := [one for one in out if one is not None]:
            self._spawn(self._driver.stop(known))

    def _called_off(self, one: Guest) -> bool:
        """End a job that was called off before it was submitted."""
        words = self._stops.get(one.attempt)
        if words is not None:
            self._finish(one, retry.End(ok=False, message=words, stopped=True))
        return words is not None

    async def _follow(self) -> None:
        """Bring home what running jobs write, and hear whether the site is to take more."""
        while True:
            await anyio.sleep(_FOLLOW_S)
            asked = await self._do(lambda db: submissions.asked(db, self._name))
            if bool(asked) == self.place.taking:
                self._queue.change(functools.partial(self._open, not asked))
                self._queue.nudge(self.place.number)
            await self._explain()
            for attempt, (out, work) in list(self._out.items()):
                one = self._guests.get(attempt)
                if one is not None and work.began and not work.over and self._remote.up:
                    with contextlib.suppress(errors.PilotageError, OSError):
                        await self._data.logs(one, Room(out.root, out.key, work.place))

    async def _explain(self) -> None:
        """Tell with each job that does not run what is wrong with its site, when that changes."""
        trouble = self._remote.trouble or self._driver.trouble
        if trouble == self._told:
            return
        self._told = trouble
        by_words: dict[str, list[Attempt]] = {}
        for attempt in self._guests:
            out, work = self._out.get(attempt, (None, None))
            if work is None or not work.began:
                usual = _name(out) if out is not None and out.known else ""
                words = f"its site has trouble: {trouble}" if trouble else usual
                by_words.setdefault(words, []).append(attempt)
        for words, attempts in by_words.items():
            await self._telling.say(attempts, words)

    def _open(self, taking: bool, _ledger: Ledger, _db: Db, _now: float) -> None:  # noqa: FBT001
        self.place.taking = taking

    async def _do(self, step: Callable[[Db], _T]) -> _T:
        return await wrap_future(self._writer.submit(step))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("site %s: %s", self._name, error, exc_info=error)


def _name(one: Submission) -> str:
    """Say how the batch system calls a submission."""
    return f"{one.batch} job {one.number}" if one.number else f"a {one.batch} job"
