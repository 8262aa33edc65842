"""The jobs that a site holds, and what has become of them since the last turn."""

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
from pilotage.match.queue import Queue
from pilotage.store import Writer

_T = TypeVar("_T")


class HeldJobs:
    """All guests of one site."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """Take who hears that there is something to be written down."""
        self._changed = changed
        self.guests: dict[Attempt, BatchJob] = {}
        #: Where each attempt is out.
        self.out: dict[Attempt, tuple[Submission, ArrayTask]] = {}
        #: What has ended and begun since the last turn.
        self.ends: list[tuple[BatchJob, retry.End]] = []
        self.began: list[Attempt] = []
        #: Why attempts are to end.
        self.stops: dict[Attempt, str] = {}
        #: Attempts whose end has been told, once.
        self._ended: set[Attempt] = set()
        #: What is under way for attempts, and ends when they are called off.
        self._under_way: dict[Attempt, asyncio.Task[Any]] = {}

    @property
    def stirred(self) -> bool:
        """Whether something has begun or ended since the last turn."""
        return bool(self.ends or self.began)

    def begin(self, attempts: list[Attempt]) -> None:
        """Hear that attempts run."""
        self.began += attempts
        self._changed()

    def finish(self, one: BatchJob, end: retry.End) -> None:
        """Hear how an attempt ended; the first word counts."""
        if one.attempt not in self._ended:
            self._ended.add(one.attempt)
            self.ends.append((one, end))
            self._changed()

    def stop(self, stops: Mapping[Attempt, str]) -> None:
        """Hear why attempts are to end; what is under way for them ends now."""
        self.stops |= stops
        for attempt in stops:
            if task := self._under_way.get(attempt):
                task.cancel()

    async def while_wanted(self, one: BatchJob, work: Coroutine[Any, Any, _T]) -> _T | None:
        """Do something for an attempt; return nothing if that was called off before it was done."""
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

    def called_off(self, one: BatchJob) -> bool:
        """End a job that was called off before it was submitted."""
        words = self.stops.get(one.attempt)
        if words is not None:
            self.finish(one, retry.End(ok=False, message=words, cause=Cause.STOPPED, stopped=True))
        return words is not None

    def leave(self, one: BatchJob) -> tuple[Submission, ArrayTask] | None:
        """Forget a guest whose end is on disk; say where it was out."""
        self.guests.pop(one.attempt, None)
        self.stops.pop(one.attempt, None)
        self._ended.discard(one.attempt)
        return self.out.pop(one.attempt, None)


#: A job and the number of its attempt.
Attempt = tuple[int, int]


class ProgressWriter:
    """Writes into the store what is known of attempts."""

    def __init__(self, writer: Writer, queue: Queue) -> None:
        """Use the clock of the queue."""
        self._writer = writer
        self._queue = queue

    async def progress(self, attempts: Sequence[Attempt], state: State, words: str = "") -> None:
        """Say how far attempts have come; one that is further already stays there."""
        now, some = self._queue.now(), list(attempts)
        await self._writer.run(lambda db: moves.progress(db, some, state, words, now))

    async def say(self, attempts: Sequence[Attempt], words: str) -> None:
        """Let people see why attempts wait."""
        rows = text.dump(list(attempts))
        if attempts:
            await self._writer.run(lambda db: db.run("job_say", rows=rows, reason=words))
