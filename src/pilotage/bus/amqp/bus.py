"""The bus over AMQP: publish, subscribe, acknowledge and request over a restored connection."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Self

import aio_pika
import aiormq
import anyio
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue, DeliveryMode
from anyio.abc import TaskStatus

from pilotage.base import errors
from pilotage.base.supervise import race
from pilotage.bus.amqp import link
from pilotage.bus.amqp.link import TROUBLES, Line, Link, asked, closed
from pilotage.bus.amqp.model import Broker, binding, checked, queue
from pilotage.bus.port import Message

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


link.read_anything()
#: Brokers of some versions give a message up that was delivered twenty times.
_ANY_NUMBER = 1_000_000_000
#: Where the broker itself leads answers to.
_ANSWERS = "amq.rabbitmq.reply-to"
#: How the broker says that somebody may not do something.
_REFUSED = "ACCESS_REFUSED"
#: How long a queue stays that nobody has read, or will read again, and what it holds at most.
_FADING = {"x-expires": 7 * 86_400_000, "x-overflow": "drop-head"}
_PASSING = {"x-expires": 600_000, "x-max-length": 10_000, "x-overflow": "drop-head"}


class AmqpBus:
    """A bus over RabbitMQ, connected inside `async with`."""

    def __init__(self, broker: Broker) -> None:
        """Get ready; nothing happens before `async with`."""
        self._broker = broker
        self._link = Link(broker)
        self._tasks = anyio.create_task_group()
        self._tags = itertools.count(1)
        self._receivers: set[Receiver] = set()
        self._asked: dict[str, Callable[[bytes], None]] = {}
        self._hears: Line | None = None
        self._hearing = anyio.Lock()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._link.keep)
        return self

    async def __aexit__(self, *what: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    @property
    def trouble(self) -> str:
        """Why there is no connection, or why not all is heard over it; empty if all is well."""
        deaf = (one.trouble for one in self._receivers if one.trouble)
        return self._link.trouble or next(deaf, "")

    def renew(self) -> None:
        """Connect anew, with the certificates that there are now."""
        self._link.renew()

    async def publish(self, topic: str, body: bytes, key: str = "", *, heard: bool = False) -> None:
        """Send, and return once the broker has it on disk."""
        message = self._message(body, message_id=key or None)
        with self._in_time(f"{topic!r} was not taken"):
            line = await self._link.line()
            await self._send(line, topic, message, heard=heard)

    @contextlib.asynccontextmanager
    async def subscribe(
        self, pattern: str, *, ahead: int = 0
    ) -> AsyncIterator[AsyncIterator[Message]]:
        """Receive; what is not acknowledged at the end of the `async with` is delivered again."""
        find = functools.partial(self._queue, pattern)
        receiver = Receiver(self._link, find, self._take, ahead=ahead)
        self._receivers.add(receiver)
        await self._tasks.start(receiver.run)
        try:
            yield receiver
        finally:
            await receiver.close()
            self._receivers.discard(receiver)

    async def ack(self, message: Message, *more: Message, done: bool = True) -> None:
        """Say that messages are dealt with; of an old delivery this means nothing."""
        tags = [one.tag for one in (message, *more)]
        for receiver in tuple(self._receivers):
            await receiver.settle(tags, done=done)

    async def request(self, topic: str, body: bytes, within: float) -> bytes:
        """Send and return the first answer."""
        name = uuid.uuid4().hex
        answers: list[bytes] = []
        answered = anyio.Event()

        def hear(answer: bytes) -> None:
            answers.append(answer)
            answered.set()

        self._asked[name] = hear
        message = self._message(body, correlation_id=name, reply_to=_ANSWERS)
        try:
            with anyio.move_on_after(within):
                line = await self._link.line()
                await self._hear_answers(line)
                await self._send(line, topic, message, heard=True)
                await answered.wait()
        finally:
            del self._asked[name]
        if not answers:
            raise errors.TimedOut(f"no answer from {topic!r} within {within:g} s")
        return answers[0]

    # -- to the broker ---------------------------------------------------------------------------

    def _message(self, body: bytes, **more: Any) -> aio_pika.Message:  # noqa: ANN401 - properties
        return aio_pika.Message(
            body, delivery_mode=DeliveryMode.PERSISTENT, user_id=self._broker.user or None, **more
        )

    async def _send(
        self, line: Line, topic: str, message: aio_pika.Message, *, heard: bool
    ) -> None:
        try:
            with asked():
                await line.exchange.publish(message, checked(topic), mandatory=heard)
        except aio_pika.exceptions.PublishError as error:
            raise errors.Unheard(f"nobody listens to {topic!r}") from error
        except aio_pika.exceptions.DeliveryError as error:
            message_ = f"too many messages wait for the reader of {topic!r}"
            raise errors.Unavailable(message_) from error
        except TROUBLES as error:
            # This ends the connection, and all that was on the way fails with it: whose doing it
            # was stands in the words of the broker alone.
            if _REFUSED in str(error) and f"topic '{topic}'" in str(error):
                message_ = f"the broker does not let us send to {topic!r}"
                raise errors.Denied(message_, hint="it has topic permissions") from error
            raise errors.Unavailable(f"the broker did not take {topic!r}: {error}") from error

    @contextlib.contextmanager
    def _in_time(self, what: str) -> Any:  # noqa: ANN401 - a context
        try:
            with anyio.fail_after(self._broker.patience):
                yield
        except TimeoutError as error:
            why = self._link.trouble or "the broker does not answer"
            raise errors.Unavailable(f"{what}: {why}") from error

    async def _hear_answers(self, line: Line) -> None:
        async def answer(message: AbstractIncomingMessage) -> None:
            hear = self._asked.get(message.correlation_id or "")
            if hear is not None:
                hear(message.body)

        # The broker takes no request of a channel that does not listen for answers.
        async with self._hearing:
            if self._hears is not line:
                with asked():
                    answers = await line.channel.get_queue(_ANSWERS, ensure=False)
                    await answers.consume(answer, no_ack=True)
                self._hears = line

    # -- from the broker -------------------------------------------------------------------------

    async def _queue(self, pattern: str, channel: AbstractChannel) -> AbstractQueue:
        """Return the queue of a pattern, there and bound."""
        broker = self._broker
        arguments: dict[str, Any] = {
            "x-queue-type": "quorum",
            "x-dead-letter-exchange": broker.dead,
            "x-max-length": broker.most,
            "x-overflow": "reject-publish",
            # A message that came back often was in the hands of somebody who died: it is no worse.
            "x-delivery-limit": _ANY_NUMBER,
        }
        if pattern in broker.single:
            arguments["x-single-active-consumer"] = True
        if pattern in broker.fading:
            arguments |= _FADING
        if pattern in broker.passing:
            del arguments["x-dead-letter-exchange"]
            arguments |= _PASSING
        else:
            await self._dead_letters(channel)
        found = await channel.declare_queue(
            queue(broker, pattern), durable=True, arguments=arguments
        )
        await found.bind(broker.exchange, binding(pattern))
        return found

    async def _dead_letters(self, channel: AbstractChannel) -> None:
        """Keep what the broker gives up, for people to look at; the oldest goes first."""
        broker = self._broker
        kept = await channel.declare_queue(
            queue(broker, "dead"), durable=True,
            arguments={
                "x-queue-type": "quorum", "x-max-length": broker.most, "x-overflow": "drop-head",
            },
        )  # fmt: skip
        await kept.bind(broker.dead, "#")

    def _take(self, message: AbstractIncomingMessage) -> Message:
        return Message(
            topic=message.routing_key or "",
            body=message.body,
            key=message.message_id or "",
            tag=next(self._tags),
            reply=self._reply(message),
            user=_known(message.user_id),
            again=bool(message.redelivered),
        )

    def _reply(
        self, message: AbstractIncomingMessage
    ) -> Callable[[bytes], Coroutine[Any, Any, None]]:
        where, name = message.reply_to, message.correlation_id

        async def reply(body: bytes) -> None:
            line = self._link.now
            if not where or line is None:
                return
            answer = aio_pika.Message(
                body, correlation_id=name, delivery_mode=DeliveryMode.NOT_PERSISTENT
            )
            # Whoever asked may be gone; then nobody hears it.
            with contextlib.suppress(*TROUBLES, aiormq.exceptions.AMQPException), asked():
                await line.channel.default_exchange.publish(answer, where, mandatory=False)

        return reply


def _known(user: str | None) -> str:
    """Return who sent a message; a name that is no text could be that of several."""
    return "" if user is None or link.ODD in user else user
