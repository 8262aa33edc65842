"""How far jobs at a site have come, and why they wait, where people see it."""

from __future__ import annotations

from collections.abc import Sequence

from pilotage.base import text
from pilotage.job import moves
from pilotage.job.model import State
from pilotage.match.queue import JobQueue
from pilotage.store import Writer

#: A job and the number of its attempt.
Attempt = tuple[int, int]


class Telling:
    """Writes into the store what is known of attempts."""

    def __init__(self, writer: Writer, queue: JobQueue) -> None:
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
