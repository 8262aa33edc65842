"""The connection of the asynchronous client."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from pilotage.base import errors
from pilotage.base.backoff import Backoff, Pauses
from pilotage.client.core import Core
from pilotage.client.model import CallRange, Delivery, Ticket
from pilotage.client.where import Address

_log = logging.getLogger("pilotage.client")
_CONNECT_S = 10.0
_RECONNECT = Backoff(first=0.05, limit=5.0, factor=2.5)


class _Line(asyncio.Protocol):
    """One connection."""

    def __init__(self, carrier: ClientConnection) -> None:
        self._carrier = carrier
        #: Done when the connection is over.
        self.over = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        """Take bytes in."""
        self._carrier.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        del exc
        if not self.over.done():
            self.over.set_result(None)


class ClientConnection:
    """Moves bytes between a core and the hub, in the thread of the event loop."""

    def __init__(self, address: Address, core: Core) -> None:
        """Get ready; `open` connects."""
        self._address, self._core = address, core
        self._loop = asyncio.get_running_loop()
        self._context = address.context()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._planned = False
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    async def open(self) -> None:
        """Connect and log in, or raise what stands in the way."""
        line = await self._connect()
        try:
            async with asyncio.timeout(_CONNECT_S):
                while not self._core.ready and self._core.refused is None:
                    await self._tidings()
                    if line.over.done():
                        raise errors.Unavailable("the hub has closed the connection")
        except TimeoutError:
            message = f"the hub at {self._address.name} does not answer"
            raise errors.Unavailable(message) from None
        finally:
            if not self._core.ready and self._transport:
                self._transport.abort()
        if self._core.refused is not None:
            raise self._core.refused
        self._task = self._loop.create_task(self._stay(line))

    def add(self, spec: bytes, part: CallRange, fixed: int = 0) -> None:
        """Have calls made."""
        self._check()
        self._core.add(spec, part, fixed)
        self._soon()

    def add_job(self, spec: bytes, ticket: Ticket) -> None:
        """Have a job run."""
        self._check()
        self._core.add_job(spec, ticket)
        self._soon()

    def add_call(self, spec: bytes, part: CallRange, binding: bytes) -> None:
        """Have a call made that is a job of its own."""
        self._check()
        self._core.add_call(spec, part, binding)
        self._soon()

    def ask(self, op: str, fields: dict[str, Any], ticket: Ticket) -> None:
        """Have a request answered."""
        self._check()
        self._core.ask(op, fields, ticket)
        self._soon()

    def drop(self, ticket: Ticket) -> None:
        """Forget a ticket."""
        self._core.drop(ticket)
        self._soon()

    async def close(self, timeout: float = 30.0) -> None:  # noqa: ASYNC109 - not all of it may be cut short
        """Send what is left and end; results that have not come never will."""
        self._closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._core.unsafe and self._core.refused is None:
                    await self._tidings()
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._timer:
            self._timer.cancel()
        if self._transport:
            self._transport.abort()
        message = "the client was closed before the result came"
        _hand_over(self._core.fail(errors.Unavailable(message, hint="the job continues")))

    def receive(self, data: bytes) -> None:
        """Take what has arrived."""
        try:
            _hand_over(self._core.receive(data, self._loop.time()))
        except errors.PilotageError as error:
            _log.info("the connection to %s is cut: %s", self._address.name, error)
            if self._transport:
                self._transport.abort()
        self._news.set()
        self._soon()

    def _check(self) -> None:
        if self._core.refused is not None:
            raise self._core.refused
        if self._closing or self._task is None:
            hint = "use it in an `async with` block"
            raise errors.UsageError("the client is not open", hint=hint)

    async def _tidings(self) -> None:
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await self._news.wait()

    # -- sending ---------------------------------------------------------------------------------

    def _soon(self) -> None:
        """Send in the next moment, together with all that is added in this one."""
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._planned = False
        now = self._loop.time()
        if self._transport is None or self._transport.is_closing():
            return
        if data := self._core.outgoing(now):
            self._transport.write(data)
        if self._core.stale(now):
            self._transport.abort()
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.001, self._core.due(now)), self._flush)

    # -- the connection --------------------------------------------------------------------------

    async def _connect(self) -> _Line:
        address = self._address
        try:
            async with asyncio.timeout(_CONNECT_S):
                transport, line = await self._loop.create_connection(
                    lambda: _Line(self), address.host, address.port, ssl=self._context
                )
        except (OSError, TimeoutError) as error:
            hint = "is the hub running, and is the address right?"
            message = f"cannot reach the hub at {address.name}: {error}"
            raise errors.Unavailable(message, hint=hint) from error
        self._transport = transport
        self._core.connected(self._loop.time())
        self._flush()
        return line

    async def _stay(self, line: _Line | None) -> None:
        """Be connected until it is time to go."""
        pauses = Pauses(_RECONNECT, random.Random())  # noqa: S311 - no secret
        while self._core.refused is None:
            try:
                line = line or await self._connect()
                await line.over
                if self._core.ready:
                    pauses.reset()
            except errors.Unavailable as error:
                _log.info("%s", error)
            line = None
            self._core.lost()
            await asyncio.sleep(pauses.next())


def _hand_over(found: Iterable[Delivery]) -> None:
    for one in found:
        one.ticket.deliver(one)
