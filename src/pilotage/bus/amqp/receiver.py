"""One subscriber: deliveries of a connection after the other, and what is not acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

import anyio
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue
from anyio.abc import TaskStatus

from pilotage.base.supervise import race
from pilotage.bus.port import Message

from .link import TROUBLES, Line, Link, asked, closed

_log = logging.getLogger("pilotage.bus")
#: Deliveries that may wait here where nobody says how many.
_AHEAD = 256
#: Seconds between two attempts to consume.
_REST_S = 0.5


class Receiver:
    """What is delivered to one subscriber, whatever becomes of connections meanwhile."""

    def __init__(
        self,
        link: Link,
        find: Callable[[AbstractChannel], Awaitable[AbstractQueue]],
        read: Callable[[AbstractIncomingMessage], Message],
        *,
        ahead: int,
    ) -> None:
        """Take how a queue is found by a channel, and how a delivery is read."""
        self._link = link
        self._find = find
        self._read = read
        self._ahead = ahead or _AHEAD
        self._here: deque[AbstractIncomingMessage] = deque()
        self._came = anyio.Event()
        self._held: dict[int, AbstractIncomingMessage] = {}
        self._told = False
        #: Why nothing is delivered though there is a connection; empty if it is.
        self.trouble = ""
        self._scope = anyio.CancelScope()
        self._closed = anyio.Event()

    async def close(self) -> None:
        """Let others have what was not acknowledged, and return once they may."""
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._closed.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while not self._here:
            await self._came.wait()
        taken = self._here.popleft()
        message = self._read(taken)
        self._held[message.tag] = taken
        return message

    async def settle(self, tags: Sequence[int], *, done: bool) -> None:
        """Tell the broker, if deliveries are of the connection that there is."""
        taken = [self._held.pop(tag) for tag in tags if tag in self._held]
        if not taken:
            return
        # A connection that broke has given it back already.
        with contextlib.suppress(*TROUBLES), asked():
            last = max(taken, key=_number)
            if done and self._all_before(last):
                await last.ack(multiple=True)
                return
            for one in taken:
                await (one.ack() if done else one.nack(requeue=True))

    def _all_before(self, last: AbstractIncomingMessage) -> bool:
        """Say whether nothing that came before a delivery is still to be dealt with."""
        # They are held in the order in which they came.
        first = next(iter(self._held.values()), None)
        return first is None or _number(first) > _number(last)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Consume until closed; it has started once the broker knows of it."""
        try:
            with self._scope:
                while True:
                    line = await self._link.line()
                    # If it was not the connection, this would be tried without a rest.
                    try:
                        with asked():
                            await self._consume(line, task_status)
                    except TROUBLES as error:
                        self._complain(line, str(error))
                    await anyio.sleep(_REST_S)
        finally:
            self._closed.set()

    async def _consume(self, line: Line, task_status: TaskStatus[None]) -> None:
        """Consume while a connection and a queue last, and forget what was delivered after that."""
        channel = await line.connection.channel(publisher_confirms=False)
        gone = asyncio.Event()
        try:
            queue = await self._find(channel)
            await channel.set_qos(prefetch_count=self._ahead)
            below = await channel.get_underlay_channel()
            # Whose queue was deleted hears nothing more, though the channel stays open.
            below.on_consumer_cancel_callbacks.add(lambda _: gone.set())
            await queue.consume(self._hear)
            self.trouble = ""
            if not self._told:
                self._told = True
                task_status.started()
            await race(channel.closed(), gone.wait())
        finally:
            self._here.clear()
            self._held.clear()
            await closed(channel)

    def _complain(self, line: Line, trouble: str) -> None:
        """Say why nothing is delivered, once; of a connection that is lost others tell."""
        if line is self._link.now and trouble != self.trouble:
            self.trouble = trouble
            _log.warning("messages cannot be had: %s; it is tried again", trouble)

    async def _hear(self, message: AbstractIncomingMessage) -> None:
        self._here.append(message)
        self._came.set()
        self._came = anyio.Event()


def _number(one: AbstractIncomingMessage) -> int:
    """Return which delivery of its channel it is."""
    return one.delivery_tag or 0
