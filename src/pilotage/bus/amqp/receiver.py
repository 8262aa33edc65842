"""One subscriber: deliveries of a connection after the other, and what is not acknowledged."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Self

import anyio
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue
from anyio.abc import TaskStatus

from pilotage.bus.port import Message

from .link import TROUBLES, Line, Link, closed

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

    async def settle(self, tag: int, *, done: bool) -> None:
        """Tell the broker, if the delivery is of the connection that there is."""
        taken = self._held.pop(tag, None)
        if taken is None:
            return
        # A connection that broke has given it back already.
        with contextlib.suppress(*TROUBLES):
            await (taken.ack() if done else taken.nack(requeue=True))

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Consume until closed; it has started once the broker knows of it."""
        try:
            with self._scope:
                while True:
                    line = await self._link.line()
                    # If it was not the connection, this would be tried without a rest.
                    with contextlib.suppress(*TROUBLES):
                        await self._consume(line, task_status)
                    await anyio.sleep(_REST_S)
        finally:
            self._closed.set()

    async def _consume(self, line: Line, task_status: TaskStatus[None]) -> None:
        """Consume while a connection lasts, and forget what it delivered after it."""
        channel = await line.connection.channel(publisher_confirms=False)
        try:
            queue = await self._find(channel)
            await channel.set_qos(prefetch_count=self._ahead)
            await queue.consume(self._hear)
            if not self._told:
                self._told = True
                task_status.started()
            await channel.closed()
        finally:
            self._here.clear()
            self._held.clear()
            await closed(channel)

    async def _hear(self, message: AbstractIncomingMessage) -> None:
        self._here.append(message)
        self._came.set()
        self._came = anyio.Event()
