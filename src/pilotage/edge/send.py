"""Sending of stored messages to the broker or an agent: in order for each attempt."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import anyio

from pilotage.base import crash, errors
from pilotage.bus.port import Bus
from pilotage.edge import cancel, records
from pilotage.edge.message import HubIdentity
from pilotage.edge.records import OutgoingMessage
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.edge")
#: Messages that are read together, and those on the way to the broker at once.
_MOST = 1000
_AT_ONCE = 200
#: Seconds until a message that the broker did not take is tried again.
_PAUSE_S = 1.0


class _Done(NamedTuple):
    """Results of sending messages."""

    gone: list[OutgoingMessage]
    #: No one listens, so that they were dropped.
    unheard: list[OutgoingMessage]
    #: They were refused before, and may have arrived this time.
    doubtful: list[OutgoingMessage]


class MessageSender:
    """Sends stored messages to sites."""

    def __init__(
        self, bus: Bus, writer: Writer, reader: Db, address: HubIdentity, now: Callable[[], float],
        wait: Callable[[float | None], Awaitable[None]], site: str = "",
    ) -> None:  # fmt: skip
        """Prepare; `wait` returns when there may be something to send, or some time is over.

        What goes to a `site` is sent, or else all that goes by the broker.
        """
        self._bus, self._writer, self._reader, self._site = bus, writer, reader, site
        self._address, self._now, self._wait = address, now, wait
        self._trouble = ""

    async def run(self) -> None:
        """Send until cancelled."""
        after = 0
        while True:
            some = records.due(self._reader, self._now(), after, _MOST, self._site)
            if some:
                stuck = await self._round(some)
                # A message that the broker does not take must not delay later ones.
                after = some[-1].id if stuck or after else 0
                continue
            if after:
                after = 0
                await anyio.sleep(_PAUSE_S)
                continue
            self._trouble = ""
            due = self._reader.value("edge_message_next", now=self._now())
            await self._wait(None if due is None else max(0.0, due - self._now()))

    async def _round(self, some: Sequence[OutgoingMessage]) -> bool:
        """Send messages, those of different attempts at once; return whether any is stuck."""
        lines: dict[tuple[int, int], list[OutgoingMessage]] = {}
        for one in some:
            lines.setdefault(one.line, []).append(one)
        done = _Done([], [], [])
        room = anyio.Semaphore(_AT_ONCE)
        async with anyio.create_task_group() as tasks:
            for line in lines.values():
                tasks.start_soon(self._line, line, done, room)
        crash.point("remote.published")
        if done.gone or done.unheard or done.doubtful:
            step = functools.partial(self._note, done=done, now=self._now())
            await self._writer.run(step)
            crash.point("remote.sent")
        return len(done.gone) + len(done.unheard) < len(some)

    async def _line(
        self, some: Sequence[OutgoingMessage], done: _Done, room: anyio.Semaphore
    ) -> None:
        """Send one after the other; the first that fails is the last."""
        for one in some:
            async with room:
                try:
                    await self._bus.publish(
                        one.topic, one.body.encode(), f"remote:{one.id}", heard=True
                    )
                except errors.Unheard:
                    done.unheard.append(one)
                    return
                except (errors.Denied, errors.UsageError) as error:
                    # Each denied attempt closes the connection, and fails all messages on the way.
                    _log.warning("%s", error)
                    done.unheard.append(one)
                    return
                except errors.PilotageError as error:
                    self._complain(error)
                    if one.tries:
                        # It may have arrived now: it no longer counts as undeliverable.
                        done.doubtful.append(one)
                    return
            done.gone.append(one)

    def _note(self, db: Db, done: _Done, now: float) -> None:
        for job, number in records.sent(db, done.gone, now):
            cancel.crossed(db, job, number, self._address, now)
        for one in done.doubtful:
            db.run("edge_message_doubt", id=one.id)
        for one in done.unheard:
            if one.kind == "job":
                site = one.topic.removeprefix("job.")
                words = f"no agent listens for the site {site}; retrying"
                records.say(db, one.job, one.number, words)
            if one.number:
                records.later(db, one, now)
        # Queries about many attempts are repeated anyway.
        records.sent(db, [one for one in done.unheard if not one.number], now)

    def _complain(self, error: errors.PilotageError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.warning("messages to sites wait: %s", error)
