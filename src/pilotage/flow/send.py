"""What is told of workflows by the broker reaches it: in order for each of them, many at once."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence

import anyio

from pilotage.base import crash, errors
from pilotage.base.wakeup import Wakeup, patience
from pilotage.bus.port import Bus
from pilotage.flow import outbox
from pilotage.flow.outbox import Kind, Word
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.flow")
_KINDS: tuple[Kind, ...] = ("status",)
#: Messages that are looked at together, and those on the way to the broker at once.
_MOST = 1000
_AT_ONCE = 200
#: Seconds before a message is tried again that the broker did not take.
_PAUSE_S = 1.0


class Sender:
    """Sends what is told of flows by the broker."""

    def __init__(
        self, bus: Bus, writer: Writer, reader: Db, now: Callable[[], float], bell: Wakeup
    ) -> None:
        """Get ready; `bell` rings when there may be something to send."""
        self._bus, self._writer, self._reader = bus, writer, reader
        self._now, self._bell = now, bell
        self._trouble = ""
        #: Lines whose next message could not be sent, up to which one all were tried, and until
        #: when others come before them.
        self._stuck: set[tuple[int, str]] = set()
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
        lines: dict[tuple[int, str], list[Word]] = {}
        for word in words:
            lines.setdefault(word.line, []).append(word)
        gone: list[Word] = []
        room = anyio.Semaphore(_AT_ONCE)
        async with anyio.create_task_group() as tasks:
            for line in lines.values():
                tasks.start_soon(self._line, line, gone, room)
        crash.point("flow.published")
        if gone:
            await self._writer.run(functools.partial(outbox.sent, words=gone))
            crash.point("flow.sent")

    async def _line(
        self, words: Sequence[Word], gone: list[Word], room: anyio.Semaphore
    ) -> None:  # fmt: skip
        """Send one after the other; the first that fails is the last."""
        for word in words:
            async with room:
                try:
                    await self._bus.publish(word.topic, word.body.encode(), f"flow:{word.id}")
                except (errors.Denied, errors.UsageError) as error:
                    # Each try costs the connection, with all that is on the way over it.
                    _log.warning("%s", error)
                    gone.append(word)
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

    def _complain(self, error: errors.PilotageError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.warning("messages of flows wait: %s", error)
