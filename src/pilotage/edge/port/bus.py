"""The agent's side of the bus over the hub's port, with a restored connection."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Self

import anyio
import msgspec
from anyio.abc import TaskStatus

from pilotage.base import errors
from pilotage.base.backoff import Backoff, Pauses
from pilotage.base.clock import dice
from pilotage.bus.port import Message
from pilotage.edge.port.model import DeliveryFrame
from pilotage.link.dialer import HubConnection

_log = logging.getLogger("pilotage.bus")
#: Seconds between two attempts to subscribe, and to close.
_REST_S = 0.5
_CLOSE_S = 2.0
#: Seconds before the first attempt to connect again; each later pause is twice as long.
_FIRST_S = 1.0

#: Connects to the hub; frames that answer no call go to the given function.
Dial = Callable[[Callable[[dict[str, Any]], None]], AbstractAsyncContextManager[HubConnection]]


class LinkTiming(msgspec.Struct, frozen=True):
    """Intervals and timeouts of a connection, in seconds."""

    #: Between two pings.
    beat: float = 15.0
    #: To send, and to connect.
    patience: float = 30.0
    #: Between two attempts to connect, at most.
    retry: float = 30.0
    #: Until the next connection, with another key.
    renew: float = 86_400.0


class HubBus:
    """A bus over the hub's own port, connected inside `async with`."""

    def __init__(self, dial: Dial, pace: LinkTiming, user: str = "") -> None:
        """Prepare; messages are from `user`, or else from the user that the hub names."""
        self._dial, self._pace, self._user = dial, pace, user
        self._tasks = anyio.create_task_group()
        self._tags, self._ids = itertools.count(1), itertools.count(1)
        self._receivers: dict[int, _Receiver] = {}
        self._line: HubConnection | None = None
        self._trouble = "not connected yet"
        self._changed = anyio.Event()
        self._renewed = anyio.Event()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._keep)
        return self

    async def __aexit__(self, *what: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    @property
    def trouble(self) -> str:
        """Why there is no connection, or why messages are missing; empty if all is well."""
        deaf = (one.trouble for one in self._receivers.values() if one.trouble)
        return self._trouble or next(deaf, "")

    def renew(self) -> None:
        """Reconnect with the current certificates."""
        self._renewed.set()
        self._renewed = anyio.Event()

    async def publish(self, topic: str, body: bytes, key: str = "", *, heard: bool = False) -> None:
        """Send, and return once the hub has it on disk."""
        with self._in_time(f"{topic!r} was not taken"):
            line = await self.line()
            await line.ask("publish", topic=topic, body=body.decode(), key=key, heard=heard)

    @contextlib.asynccontextmanager
    async def subscribe(
        self, pattern: str, *, ahead: int = 0
    ) -> AsyncIterator[AsyncIterator[Message]]:
        """Receive; unacknowledged messages are delivered again after the `async with`."""
        receiver = _Receiver(self, next(self._ids), pattern, ahead)
        self._receivers[receiver.id] = receiver
        await self._tasks.start(receiver.run)
        try:
            yield receiver
        finally:
            await receiver.close()
            del self._receivers[receiver.id]

    async def ack(self, message: Message, *more: Message, done: bool = True) -> None:
        """Acknowledge messages; acknowledging an old delivery has no effect."""
        tags = [one.tag for one in (message, *more)]
        for receiver in tuple(self._receivers.values()):
            await receiver.settle(tags, done=done)

    async def request(self, topic: str, body: bytes, within: float) -> bytes:
        """Send and return the first answer."""
        try:
            with anyio.fail_after(within + self._pace.patience):
                line = await self.line()
                said = await line.ask("request", wait=within, topic=topic, body=body.decode())
        except TimeoutError as error:
            raise errors.TimedOut(f"no answer from {topic!r}: {self._trouble}") from error
        return str(said["body"]).encode()

    # -- the connection --------------------------------------------------------------------------

    async def line(self) -> HubConnection:
        """Return the connection, as soon as there is one."""
        while self._line is None:
            await self._changed.wait()
        return self._line

    @property
    def now(self) -> HubConnection | None:
        """The connection, if there is one."""
        return self._line

    async def _keep(self) -> None:
        """Connect again and again until cancelled."""
        pauses, told = Pauses(Backoff(_FIRST_S, self._pace.retry, jitter=0.5), dice()), ""
        while True:
            try:
                async with self._dial(self._hear) as line:
                    pauses.reset()
                    told = ""
                    self._set(line, "")
                    if await self._until_over(line):
                        self._set(None, "reconnecting")
                        continue
                    self._set(None, line.over)
            except errors.PilotageError as error:
                self._set(None, str(error))
            if self._trouble != told:
                told = self._trouble
                _log.warning("hub: %s; retrying", told)
            # Not all at the same moment: a hub that comes back has much to do.
            with anyio.move_on_after(pauses.next()):
                await self._renewed.wait()

    async def _until_over(self, line: HubConnection) -> bool:
        """Wait until a connection is lost or to be renewed; return whether it is to be renewed."""
        async with anyio.create_task_group() as tasks:

            async def lost() -> None:
                await line.lost()
                tasks.cancel_scope.cancel()

            tasks.start_soon(lost)
            tasks.start_soon(self._live, line)
            with anyio.move_on_after(self._pace.renew):
                await self._renewed.wait()
            tasks.cancel_scope.cancel()
            return True
        return False

    async def _live(self, line: HubConnection) -> None:
        """Send pings, and close a connection without answers."""
        while True:
            await anyio.sleep(self._pace.beat)
            try:
                with anyio.fail_after(2 * self._pace.beat):
                    await line.ask("ping")
            except (errors.PilotageError, TimeoutError):
                line.cut("the hub has fallen silent")

    def _set(self, line: HubConnection | None, trouble: str) -> None:
        self._line, self._trouble = line, trouble
        self._changed.set()
        self._changed = anyio.Event()

    @contextlib.contextmanager
    def _in_time(self, what: str) -> Any:  # noqa: ANN401 - a context
        try:
            with anyio.fail_after(self._pace.patience):
                yield
        except TimeoutError as error:
            why = self._trouble or "the hub does not answer"
            raise errors.Unavailable(f"{what}: {why}") from error

    # -- deliveries ------------------------------------------------------------------------------

    def _hear(self, said: dict[str, Any]) -> None:
        one = msgspec.convert(said, DeliveryFrame)
        receiver = self._receivers.get(one.to)
        if receiver is not None:
            receiver.hear(one)

    def message(self, one: DeliveryFrame) -> Message:
        """Return a delivery as a message for the subscriber."""
        line = self._line

        async def reply(body: bytes) -> None:
            # The requester may be gone; then the answer is dropped.
            with contextlib.suppress(errors.PilotageError, OSError):
                if line is not None:
                    await line.ask("reply", tag=one.tag, body=body.decode())

        return Message(
            topic=one.topic, body=one.body.encode(), key=one.key, tag=next(self._tags),
            reply=reply, user=self._user or one.user, again=one.again,
        )  # fmt: skip


class _Receiver:
    """Deliveries to one subscriber, across reconnections."""

    def __init__(self, bus: HubBus, number: int, pattern: str, ahead: int) -> None:
        self.id = number
        #: Why nothing is delivered though there is a connection; empty if it is.
        self.trouble = ""
        self._bus, self._pattern, self._ahead = bus, pattern, ahead
        self._here: deque[DeliveryFrame] = deque()
        self._came = asyncio.Event()
        #: By our tag, that of the hub.
        self._held: dict[int, int] = {}
        self._told = False
        self._scope = anyio.CancelScope()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while not self._here:
            self._came.clear()
            await self._came.wait()
        taken = self._here.popleft()
        message = self._bus.message(taken)
        self._held[message.tag] = taken.tag
        return message

    def hear(self, one: DeliveryFrame) -> None:
        """Take a delivery."""
        self._here.append(one)
        self._came.set()

    async def settle(self, tags: list[int], *, done: bool) -> None:
        """Acknowledge deliveries of the current connection at the hub."""
        found = [self._held.pop(tag) for tag in tags if tag in self._held]
        line = self._bus.now
        if found and line is not None and not line.over:
            # A connection that broke has given it back already.
            with contextlib.suppress(OSError):
                await line.tell("ack", tags=found, done=done)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Subscribe on one connection after the other; it has started once the hub knows of it."""
        with self._scope:
            while True:
                line = await self._bus.line()
                try:
                    await self._listen(line, task_status)
                except errors.PilotageError as error:
                    self._complain(line, str(error))
                await anyio.sleep(_REST_S)

    async def _listen(self, line: HubConnection, task_status: TaskStatus[None]) -> None:
        try:
            await line.ask("subscribe", id=self.id, pattern=self._pattern, ahead=self._ahead)
            self.trouble = ""
            if not self._told:
                self._told = True
                task_status.started()
            await line.lost()
        finally:
            self._here.clear()
            self._held.clear()

    async def close(self) -> None:
        """Stop deliveries, and wait until unacknowledged messages are returned."""
        self._scope.cancel()
        line = self._bus.now
        if line is not None and not line.over:
            with (
                anyio.move_on_after(_CLOSE_S, shield=True),
                contextlib.suppress(errors.PilotageError),
            ):
                await line.ask("unsubscribe", id=self.id)

    def _complain(self, line: HubConnection, trouble: str) -> None:
        """Log once why nothing is delivered; a lost connection is logged elsewhere."""
        if not line.over and trouble != self.trouble:
            self.trouble = trouble
            _log.warning("cannot receive messages: %s; retrying", trouble)
