"""What waits in the outbox reaches the broker: in order for each attempt, and many at once."""

from __future__ import annotations

import functools
import logging
from asyncio import wrap_future
from collections.abc import Callable, Sequence

import anyio

from pilotage import crash, errors
from pilotage.bus.port import Bus
from pilotage.hub.flows import outbox
from pilotage.hub.flows.outbox import Kind, Word
from pilotage.hub.sources import Bell, patience
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.flow")
_KINDS: tuple[Kind, ...] = ("job", "control", "status")
#: Messages that are looked at together, and those on the way to the broker at once.
_MOST = 1000
_AT_ONCE = 200
#: Seconds before the broker is tried again that took nothing.
_PAUSE_S = 1.0

#: Told in a transaction that nobody listens to what a message is for.
Unheard = Callable[[Db, Word, float], None]
#: Told in a transaction that jobs were sent which had been called off meanwhile.
Recalled = Callable[[Db, Word, float], None]


class Sender:
    """Sends what is about jobs at sites, and what is told of flows by the broker."""

    def __init__(
        self, bus: Bus, writer: Writer, reader: Db, now: Callable[[], float], bell: Bell,
        unheard: Unheard, recalled: Recalled,
    ) -> None:  # fmt: skip
        """Get ready; `bell` rings when there may be something to send."""
        self._bus, self._writer, self._reader = bus, writer, reader
        self._now, self._bell = now, bell
        self._unheard, self._recalled = unheard, recalled
        self._trouble = ""

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            words = outbox.unsent(self._reader, _KINDS, self._now(), after=0, most=_MOST)
            if words:
                await self._round(words)
            else:
                due = self._reader.value("flows_next_word", now=self._now())
                await self._bell.wait(patience(due, self._now()))

    async def _round(self, words: Sequence[Word]) -> None:
        """Send some messages, those of different lines at once."""
        lines: dict[tuple[object, ...], list[Word]] = {}
        for word in words:
            lines.setdefault(word.line, []).append(word)
        gone: list[Word] = []
        unheard: list[Word] = []
        room = anyio.Semaphore(_AT_ONCE)
        async with anyio.create_task_group() as tasks:
            for line in lines.values():
                tasks.start_soon(self._line, line, gone, unheard, room)
        crash.point("flow.published")
        if gone or unheard:
            step = functools.partial(self._note, gone=gone, unheard=unheard, now=self._now())
            await wrap_future(self._writer.submit(step))
            crash.point("flow.sent")
        if len(gone) + len(unheard) < len(words):
            await anyio.sleep(_PAUSE_S)
        elif self._trouble:
            self._trouble = ""
            _log.info("messages of flows are sent again")

    async def _line(
        self, words: Sequence[Word], gone: list[Word], unheard: list[Word], room: anyio.Semaphore
    ) -> None:
        """Send one after the other; the first that fails is the last."""
        for word in words:
            async with room:
                try:
                    heard = word.kind != "status"
                    key = f"flow:{word.id}"
                    await self._bus.publish(word.topic, word.body.encode(), key, heard=heard)
                except errors.Unheard:
                    unheard.append(word)
                    return
                except errors.Denied as error:
                    # Each try costs the connection, with all that is on the way over it.
                    _log.warning("%s", error)
                    (gone if word.kind == "status" else unheard).append(word)
                    return
                except errors.PilotageError as error:
                    self._complain(error)
                    return
            gone.append(word)

    def _note(self, db: Db, gone: list[Word], unheard: list[Word], now: float) -> None:
        for word in outbox.sent(db, gone, now):
            self._recalled(db, word, now)
        for word in unheard:
            if word.task:
                outbox.later(db, word, now)
                self._unheard(db, word, now)
        # What is asked of a site that is not there is asked again by itself.
        outbox.sent(db, [word for word in unheard if not word.task], now)

    def _complain(self, error: errors.PilotageError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.warning("messages of flows wait: %s", error)
