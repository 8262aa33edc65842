"""The job queue: places report ended jobs and ask for work; each answer is on disk first."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from concurrent.futures import Future

from pilotage.base import crash, errors
from pilotage.base.clock import Clock
from pilotage.job.moves import EndedJob
from pilotage.match.cluster import Cluster
from pilotage.match.negotiate import Matcher
from pilotage.match.place import Granted, PlaceRequest, TurnOutcome
from pilotage.match.turn import NOT_NOW, TurnBatch, TurnRecords
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.match")
Change = Callable[[TurnRecords, Db, float], None]
#: The place of a request that no place makes.
NO_PLACE = -1


class JobQueue:
    """Collects what places say while a turn is being written, and makes it the next turn."""

    def __init__(
        self, writer: Writer, matcher: Matcher, folder: str, clock: Clock, dice: random.Random,
        may_come: Callable[[Cluster], bool] = lambda _: False,
        on_workflows: Callable[[list[int]], None] = lambda _: None,
    ) -> None:  # fmt: skip
        """Prepare; the first turn reads the queue from the store.

        `may_come` returns whether a place that could run a kind of jobs may appear by itself.
        `on_workflows` is called with queued jobs that are workflows, after this is on disk.
        """
        self._writer = writer
        self._ledger = TurnRecords(matcher, folder, dice)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._batch = TurnBatch()
        #: By place, the last question of the next turn.
        self._asking: dict[int, PlaceRequest] = {}
        self._flying = False
        self._again = False
        self._alarm: asyncio.TimerHandle | None = None
        #: Who wants to know that jobs ended, after this is on disk: (job, attempt) each.
        self.on_end: list[Callable[[list[tuple[int, int]]], None]] = []
        self._on_workflows = on_workflows
        self._may_come = may_come
        #: Whether the last turn failed for a reason that is ours.
        self.broken = ""

    # -- what others call, from the event loop's thread ------------------------------------------

    def poke(self) -> None:
        """Start a turn: there may be new jobs."""
        if self._flying:
            self._again = True
        else:
            self._fly()

    def now(self) -> float:
        """Return the time by the clock of the queue."""
        return self._clock.now()

    def change(self, change: Change) -> None:
        """Change the places in the next turn."""
        self._batch.changes.append(change)
        self.poke()

    def ask(self, request: PlaceRequest) -> None:
        """Report what ended at a place and ask for work; `request.answer` gets the answer."""
        self._batch.requests.append(request)
        self._asking[request.place] = request
        self.poke()

    def follow_ends(self, follower: Callable[[Db, float], None]) -> None:
        """Call `follower` in the transaction of each turn in which jobs ended.

        Jobs that it adds are matched in the same turn.
        """
        self.change(lambda ledger, _db, _now: ledger.followers.append(follower))

    def never(self, _db: Db) -> set[int]:
        """Name the definitions whose jobs no place could ever run; in the writer's thread only."""
        return self._ledger.never(self._may_come)

    def nudge(self, place: int) -> None:
        """Answer a place that waits, or is about to, at once."""
        if request := self._asking.get(place):
            request.park = False
        self.change(lambda ledger, _db, _now: ledger.unpark(place))

    def exchange(
        self, place: int, ends: list[EndedJob], *, ahead: int = 0, park: bool = False
    ) -> asyncio.Future[Granted]:
        """Report what ended at a place and return a future of the answer."""
        heard: asyncio.Future[Granted] = self._loop.create_future()
        request = PlaceRequest(
            place, lambda granted: _hear(heard, granted), ends, ahead, park,
            lambda error: _refuse(heard, error),
        )  # fmt: skip
        self.ask(request)
        return heard

    async def do(self, change: Change) -> None:
        """Change the places, and wait until that is on disk; what it raises is raised here."""
        failed: list[Exception] = []

        def guarded(ledger: TurnRecords, db: Db, now: float) -> None:
            failed.clear()
            try:
                ledger.attempt(db, lambda: change(ledger, db, now), now)
            except NOT_NOW:
                raise
            except Exception as error:  # noqa: BLE001 - the caller gets the error
                failed.append(error)

        done: asyncio.Future[Granted] = self._loop.create_future()
        self._batch.changes.append(guarded)
        # A request of no place is answered as all others, when the turn is on disk.
        self.ask(PlaceRequest(NO_PLACE, lambda granted: _hear(done, granted)))
        await done
        if failed:
            raise failed[0]

    # -- turns -----------------------------------------------------------------------------------

    def _fly(self) -> None:
        self._flying, self._again = True, False
        batch, self._batch, self._asking = self._batch, TurnBatch(), {}
        now = self._clock.now()
        if batch.requests:
            crash.point("job.before_claim")
        turn = self._writer.submit(lambda db: self._ledger.turn(db, batch, now))
        turn.add_done_callback(lambda done: self._call(self._land, batch, done))

    def _call(self, what: Callable[..., None], *values: object) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *values)
        except RuntimeError:
            # The loop is closed: no caller waits for the answer.
            _log.debug("a turn ended after its loop")

    def _land(self, batch: TurnBatch, done: Future[TurnOutcome]) -> None:
        self._flying = False
        failure = done.exception()
        if failure is not None:
            self._fail(batch, failure)
            return
        outcome = done.result()
        self._ledger.settled(outcome)
        self.broken = ""
        if outcome.ended:
            crash.point("result.after_commit")
            for hear in self.on_end:
                hear(outcome.ended)
        if outcome.workflows:
            self._on_workflows(outcome.workflows)
        for request, error in outcome.refused:
            request.refuse(error)
        for request, granted in outcome.answers:
            if granted.claims:
                crash.point("job.claimed")
            try:
                request.answer(granted)
            except Exception:  # noqa: BLE001 - one must not keep the others from hearing
                _log.exception("place %d could not be answered", request.place)
        self._set_alarm(outcome.due)
        if self._again or self._batch.requests or self._batch.changes:
            self._fly()

    def _fail(self, batch: TurnBatch, error: BaseException) -> None:
        """Retry a turn that could not be written: no request was answered."""
        self.broken = str(error)
        if not isinstance(error, errors.StoreUnavailable):
            _log.error("a turn of the matchmaker failed", exc_info=error)
        else:
            _log.error("%s; the matchmaker waits", error)
        self._batch.changes[:0] = batch.changes
        self._batch.requests[:0] = batch.requests
        self._loop.call_later(1.0, self.poke)

    def _set_alarm(self, due: float | None) -> None:
        if self._alarm:
            self._alarm.cancel()
            self._alarm = None
        if due is not None:
            wait = max(0.001, min(60.0, due - self._clock.now()))
            self._alarm = self._loop.call_later(wait, self.poke)


def _hear(future: asyncio.Future[Granted], granted: Granted) -> None:
    if not future.cancelled():
        future.set_result(granted)


def _refuse(future: asyncio.Future[Granted], error: Exception) -> None:
    if not future.cancelled():
        future.set_exception(error)
