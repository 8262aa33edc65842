"""Jobs that a site holds, and their changes since the last turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from pilotage.base import text
from pilotage.batch.job import BatchJob
from pilotage.batch.submission import ArrayTask, Submission
from pilotage.job import moves, retry
from pilotage.job.model import State
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
