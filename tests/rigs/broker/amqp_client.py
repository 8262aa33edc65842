"""A client of the broker that knows nothing of Pilotage: plain AMQP, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import aio_pika
import aiormq
from aio_pika.abc import AbstractChannel, AbstractExchange, AbstractIncomingMessage

from testbed.rabbit import Rabbit
from tests.suite.programs import PATIENCE

#: What may go wrong while a broker is killed and started again.
_TROUBLES = (aio_pika.exceptions.AMQPError, OSError, TimeoutError, RuntimeError)
#: A queue that nobody has read for so long goes by itself.
_EXPIRES_MS = 900_000
_T = TypeVar("_T")


class ReceivedMessage(NamedTuple):
    """A message as it came."""

    topic: str
    body: bytes
    #: Whom the broker has verified as its sender.
    user: str
    when: float
    #: What it says, if it is an object of JSON.
    said: dict[str, Any]


class AmqpClient:
    """One user at one exchange, who posts and listens; `heard` has all that came."""

    def __init__(
        self, rabbit: Rabbit, user: str, exchange: str, listens: Sequence[str] = ()
    ) -> None:
        """Take also the patterns of what is heard, as AMQP writes them."""
        self._rabbit = rabbit
        self.user = user
        self._name = exchange
        self._listens = listens
        self._queue = f"outsider-{exchange}-{user}"
        self.heard: list[ReceivedMessage] = []
        self._channel: AbstractChannel | None = None
        self._exchange: AbstractExchange | None = None
        self._connection: aio_pika.abc.AbstractConnection | None = None
        self._posting = asyncio.Lock()
        self._listening = threading.Event()
        self._listener: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if self._listens:
            self._do(self._begin())
            assert self._listening.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def post(
        self, topic: str, *bodies: bytes | dict[str, Any], named: bool = True, posing: str = "",
        patience: float = PATIENCE, **more: Any,
    ) -> None:  # fmt: skip
        """Send messages that somebody must hear, again and again until the broker has them.

        With no name they carry no `user_id`; `posing` puts somebody else there.
        """
        as_bytes = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in bodies]
        user_id = (posing or self.user) if named else None
        self._do(self._post(topic, as_bytes, patience, user_id=user_id, **more), patience + 30)

    def forget(self, *queues: str) -> None:
        """Hear no more, and remove queues and the exchange, if they are there."""
        self._do(self._forget(queues))

    def waiting(self, queue: str) -> int:
        """Count messages that are ready in a queue."""
        return self._do(self._count(queue))[0]

    def purge(self, queue: str) -> None:
        """Have all that waits in a queue lost."""
        self._do(self._purge(queue))

    def listeners(self, queue: str) -> int:
        """Count those who take messages from a queue, or would."""
        return self._do(self._count(queue))[1]

    # -- in the thread ---------------------------------------------------------------------------

    def _do(self, act: Coroutine[Any, Any, _T], patience: float = PATIENCE) -> _T:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(patience)

    async def _dial(self) -> aio_pika.abc.AbstractConnection:
        papers = self._rabbit.papers[self.user]
        context = ssl.create_default_context(cafile=str(self._rabbit.authority.certificate))
        context.load_cert_chain(*papers)
        url = aio_pika.connection.make_url(f"{self._rabbit.url}?auth=external")
        connection = aio_pika.Connection(url, ssl_context=context)
        try:
            await connection.connect(timeout=20)
        except BaseException:
            # Else it is closed by whoever collects garbage, in a thread that has no loop.
            await connection.close()
            raise
        return connection

    async def _post(
        self, topic: str, bodies: list[bytes], patience: float, **properties: Any
    ) -> None:  # fmt: skip
        mode = aio_pika.DeliveryMode.PERSISTENT
        left = [aio_pika.Message(one, delivery_mode=mode, **properties) for one in bodies]
        deadline = time.monotonic() + patience
        async with self._posting:
            while left:
                done = await self._some(topic, left)
                wrong = [one for one in done if isinstance(one, BaseException)]
                for one in wrong:
                    if isinstance(one, aiormq.exceptions.ChannelPreconditionFailed):
                        raise one
                left = [
                    one for one, how in zip(left, done, strict=True)
                    if isinstance(how, BaseException)
                ]  # fmt: skip
                if left:
                    if time.monotonic() > deadline:
                        raise wrong[0]
                    await asyncio.sleep(0.2)

    async def _some(self, topic: str, messages: list[aio_pika.Message]) -> list[object]:
        """Try to send, and return how it went for each."""
        try:
            exchange = await self._ready()
        except _TROUBLES as error:
            return [error] * len(messages)
        sent = (exchange.publish(one, topic, timeout=20) for one in messages)
        return [*await asyncio.gather(*sent, return_exceptions=True)]

    async def _ready(self) -> AbstractExchange:
        if self._exchange is None or self._channel is None or self._channel.is_closed:
            await self._hang_up()
            self._connection = await self._dial()
            self._channel = await self._connection.channel(on_return_raises=True)
            self._exchange = await self._channel.declare_exchange(
                self._name, aio_pika.ExchangeType.TOPIC, durable=True
            )
        return self._exchange

    async def _begin(self) -> None:
        self._listener = self._loop.create_task(self._listen())

    async def _listen(self) -> None:
        while True:
            with contextlib.suppress(*_TROUBLES):
                connection = await self._dial()
                async with connection:
                    channel = await connection.channel(publisher_confirms=False)
                    await channel.set_qos(prefetch_count=1000)
                    kind = aio_pika.ExchangeType.TOPIC
                    exchange = await channel.declare_exchange(self._name, kind, durable=True)
                    queue = await channel.declare_queue(
                        self._queue, durable=True, arguments={"x-expires": _EXPIRES_MS}
                    )
                    for pattern in self._listens:
                        await queue.bind(exchange, pattern)
                    await queue.consume(self._hear)
                    self._listening.set()
                    await channel.closed()
            await asyncio.sleep(0.2)

    async def _hear(self, message: AbstractIncomingMessage) -> None:
        topic, user = message.routing_key or "", message.user_id or ""
        self.heard.append(
            ReceivedMessage(topic, message.body, user, time.time(), _object(message.body))
        )
        with contextlib.suppress(*_TROUBLES):
            await message.ack()

    async def _forget(self, queues: Sequence[str]) -> None:
        await self._deaf()
        with contextlib.suppress(*_TROUBLES):
            async with await self._dial() as connection:
                channel = await connection.channel()
                for name in (*queues, self._queue):
                    await channel.queue_delete(name)
                await channel.exchange_delete(self._name)

    async def _count(self, queue: str) -> tuple[int, int]:
        async with await self._dial() as connection:
            channel = await connection.channel()
            found = (await channel.declare_queue(queue, passive=True)).declaration_result
            return int(found.message_count or 0), int(found.consumer_count or 0)

    async def _purge(self, queue: str) -> None:
        async with await self._dial() as connection:
            channel = await connection.channel()
            await (await channel.declare_queue(queue, passive=True)).purge()

    async def _hang_up(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(*_TROUBLES):
                await self._connection.close()

    async def _deaf(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])

    async def _end(self) -> None:
        await self._deaf()
        await self._hang_up()


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
