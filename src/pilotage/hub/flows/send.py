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
#: Seconds before a message is tried again that the broker did not take.
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
        #: Lines whose next message could not be sent, up to which one all were tried, and until
        #: when others come before them.
        self._stuck: set[tuple[object, ...]] = set()
        self._after, self._due = 0, 0.0

    async def run(self) -> None:
        """Send until cancelled."""
        more = False
        while True:
            if self._stuck and not more and anyio.current_time() >= self._due:
                self._stuck, self._after = set(), 0
            words = outbox.unsent(self._reader, _KINDS, self._now(), after=self._after, most=_MOST)
            more = len(words) == _MOST
            if words:
                await self._round([one for one in words if one.line not in self._stuck])
                # What the broker does not take must not keep it from all that comes after it.
                self._after = words[-1].id if self._stuck else 0
            elif self._stuck:
                await self._bell.wait(max(0.0, self._due - anyio.current_time()))
            else:
                self._all_sent()
                due = self._reader.value("flows_next_word", now=self._now())
                await self._bell.wait(patience(due, self._now()))

    def _all_sent(self) -> None:
        if self._trouble:
            self._trouble = ""
            _log.info("messages of flows are sent again")

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
                except (errors.Denied, errors.UsageError) as error:
                    # Each try costs the connection, with all that is on the way over it.
                    _log.warning("%s", error)
                    (gone if word.kind == "status" else unheard).append(word)
                    return
                except errors.PilotageError as error:
                    self._complain(error)
                    self._leave(word)
                    return
            gone.append(word)

    def _leave(self, word: Word) -> None:
        """Have what is of one line with a message wait for it, and that for a while."""
        if not self._stuck:
            self._due = anyio.current_time() + _PAUSE_S
        self._stuck.add(word.line)

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
