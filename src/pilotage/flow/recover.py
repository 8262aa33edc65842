"""What was left and is not there any more is had again: sent once more, or made once more."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from pilotage.base import units
from pilotage.edge.inspect import Inspector
from pilotage.edge.message import HubAddress
from pilotage.flow import broker, moves, reads, records, results
from pilotage.flow.records import AttemptRow
from pilotage.project.folder import ProjectFolder
from pilotage.store import Db, Writer

#: Sends what a job of this hub has left over whatever is there; says what of it cannot be.
Send: TypeAlias = Callable[[AttemptRow], Awaitable[str]]


class Task(msgspec.Struct, frozen=True):
    """Which task it is."""

    flow: int
    step: str
    item: int
    id: int


class Healer:
    """Has data again that somebody has lost."""

    def __init__(
        self, project: ProjectFolder, writer: Writer, reader: Db, inspector: Inspector, send: Send
    ) -> None:
        """Take the store, who looks at data, and who sends that of jobs of this hub."""
        flows = project.settings.flows
        self._writer, self._reader = writer, reader
        self._reply, self._now = flows.reply, project.clock.now
        self._silence = units.seconds(flows.silence)
        self._inspector, self._send = inspector, send

    def waits(self, attempt: AttemptRow) -> bool:
        """Say whether what an attempt has left was asked for again, and may still come."""
        return results.waits(self._reader, attempt, self._now(), self._silence)

    async def hope(self, attempt: AttemptRow, why: str) -> bool:
        """Have what an attempt has left sent again; say whether it may still come."""
        if attempt.way != "edge":
            return False
        address = HubAddress(broker.hub(self._reader), self._reply)
        return await self._writer.run(
            functools.partial(
                results.ask, attempt=attempt, reason=why, address=address, now=self._now(),
                patience=self._silence,
            )
        )  # fmt: skip

    async def sources(self, task: Task, number: int, consumer: int = 0) -> str | None:
        """See to all that a task reads of others; say what is wrong, nothing if it reads nothing.

        What is gone is sent again, or made again: the task waits for that.
        """
        db = self._reader
        sources = [
            one
            for take in results.takes_of(db, task.id, number)
            for one in reads.of_item(
                db, task.flow, task.step, task.item, take, records.sources(db, task.flow, take)
            )
        ]
        found = [(one, records.attempt(db, one.task, one.number)) for one in sources]
        made = [(one, attempt) for one, attempt in found if attempt is not None]
        for one, attempt in made:
            # Before any byte is read: this is asked again and again until it has come.
            if self.waits(attempt):
                return f"what `{one.step}` has left is sent again"
        wrong = ""
        for one, attempt in made:
            if trouble := await self.mend(attempt, consumer):
                wrong = f"what `{one.step}` has left is not there: {trouble}"
        return wrong if made else None

    async def mend(self, made: AttemptRow, consumer: int = 0) -> str:
        """See that what an attempt has left is whole; say what is wrong while it is not."""
        if self.waits(made):
            return "it is sent again"
        found = await self._inspector.look(made.place, made.digest, deep=True)
        if found.trouble and made.way == "here" and not await self._send(made):
            found = await self._inspector.look(made.place, made.digest, deep=True)
        if found.trouble and not await self.hope(made, found.trouble):
            stale = functools.partial(
                moves.stale, task=made.task, now=self._now(), reason=found.trouble,
                consumer=consumer,
            )  # fmt: skip
            await self._writer.run(stale)
        return found.trouble
