"""A connection to the broker that is restored when it is lost, with the current certificates.

Properties of messages are decoded leniently: senders choose names, times and headers freely, and
the broker passes on invalid ones. The library would drop the whole connection, and the message
would come again with the next one, so that a single sender could cut off all receivers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import ssl
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import aio_pika
import aiormq
import anyio
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange
from pamqp import decode
from yarl import URL

from pilotage.base import errors
from pilotage.base.backoff import Backoff, Pauses
from pilotage.base.clock import dice
from pilotage.base.supervise import race
from pilotage.bus.amqp.model import Broker

_log = logging.getLogger("pilotage.bus")
# It would say each trouble a second time, and less clearly.
logging.getLogger("aiormq").setLevel(logging.CRITICAL)
#: Seconds before the first attempt to connect again; each later pause is twice as long.
_FIRST_S = 1.0
_FILES = "`ca`, `certificate` and `key` are PEM files; certificate and key belong together"
#: What may go wrong with a broker at any time, and is no mistake of ours.
TROUBLES = (aiormq.exceptions.AMQPError, OSError, TimeoutError, ConnectionError, RuntimeError)


class Line:
    """A connection while it lasts."""

    def __init__(
        self, connection: AbstractConnection, channel: AbstractChannel, exchange: AbstractExchange
    ) -> None:
        self.connection = connection
        #: For what is sent; the broker confirms each.
        self.channel = channel
        self.exchange = exchange

    async def lost(self) -> None:
        """Return once the connection or its channel is over."""
        await race(self.connection.closed(), self.channel.closed())


class Link:
    """Keeps a connection; `line` waits for it."""

    def __init__(self, broker: Broker, chance: random.Random | None = None) -> None:
        """Get ready; nothing happens before `keep`."""
        self._pauses = Pauses(Backoff(_FIRST_S, broker.retry, jitter=0.5), chance or dice())
        self._broker = broker
        self._line: Line | None = None
        self._changed = anyio.Event()
        self._renewed = anyio.Event()
        #: Why there is no connection; empty if there is one.
        self.trouble = "not connected yet"

    @property
    def now(self) -> Line | None:
        """The connection, if there is one."""
        return self._line

    async def line(self) -> Line:
        """Return the connection, as soon as there is one."""
        while self._line is None:
            await self._changed.wait()
        return self._line

    async def keep(self) -> None:
        """Connect again and again until cancelled."""
        while True:
            try:
                async with self._dialled() as line:
                    self._pauses.reset()
                    self._set(line, "")
                    if await self._renewal(line):
                        self._set(None, "reconnecting")
                        continue
                    self._set(None, "the connection was lost")
            except (*TROUBLES, errors.PilotageError) as error:
                self._set(None, str(error) or type(error).__name__)
            _log.warning("broker %s: %s; it is tried again", self._broker.place, self.trouble)
            # Not all at the same moment: a broker that comes back is weak.
            with anyio.move_on_after(self._pauses.next()):
                await self._renewed.wait()

    def renew(self) -> None:
        """Connect anew, with the certificates that there are now."""
        self._renewed.set()
        self._renewed = anyio.Event()

    async def _renewal(self, line: Line) -> bool:
        """Wait until a connection is lost, or is to be another one; say which."""
        renewed, lost = await race(self._renewed.wait(), line.lost())
        return renewed and not lost

    def _set(self, line: Line | None, trouble: str) -> None:
        self._line, self.trouble = line, trouble
        self._changed.set()
        self._changed = anyio.Event()

    @contextlib.asynccontextmanager
    async def _dialled(self) -> AsyncIterator[Line]:
        broker = self._broker
        url = _url(broker)
        with anyio.fail_after(broker.patience), asked():
            context = await anyio.to_thread.run_sync(secured, broker)
            connection = await connected(url, context, broker.patience)
        try:
            with anyio.fail_after(broker.patience), asked():
                channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
                kind = aio_pika.ExchangeType.TOPIC
                await channel.declare_exchange(broker.dead, kind, durable=True)
                exchange = await channel.declare_exchange(broker.exchange, kind, durable=True)
            yield Line(connection, channel, exchange)
        finally:
            await closed(connection)


@contextlib.contextmanager
def asked() -> Iterator[None]:
    """Take a cancellation that nobody here asked for as what it is: a connection that was lost.

    The library cancels whoever waits for a broker that has fallen silent.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ConnectionError("the broker has fallen silent") from error


async def connected(
    url: str | URL, context: ssl.SSLContext | None, patience: float
) -> AbstractConnection:
    """Connect; a try that failed is closed at once, and not by whoever collects garbage."""
    connection = aio_pika.Connection(aio_pika.connection.make_url(url), ssl_context=context)
    try:
        await connection.connect(timeout=patience)
    except BaseException:
        await connection.close()
        raise
    return connection


async def closed(one: AbstractConnection | AbstractChannel) -> None:
    """Close what may be broken already, whoever is cancelled."""
    with anyio.move_on_after(2, shield=True), contextlib.suppress(*TROUBLES), asked():
        await one.close()


def secured(broker: Broker) -> ssl.SSLContext | None:
    """Say how the connection is encrypted, with what is in the files now."""
    if not broker.url.startswith("amqps:"):
        return None
    for file in filter(None, (broker.ca, broker.certificate, broker.key)):
        if not os.access(file, os.R_OK):
            message = f"cannot use the certificates for {broker.place}: {file} cannot be read"
            raise errors.ConfigError(message, hint=_FILES)
    try:
        context = ssl.create_default_context(cafile=broker.ca or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if broker.certificate:
            context.load_cert_chain(broker.certificate, broker.key or None)
    except (OSError, ssl.SSLError) as error:
        message = f"cannot use the certificates for {broker.place}: {error}"
        raise errors.ConfigError(message, hint=_FILES) from error
    return context


def _url(broker: Broker) -> URL:
    url = URL(broker.url)
    if broker.certificate:
        # The certificate says who we are, and no password does.
        url = url.update_query(auth="external")
    return url.update_query(heartbeat=str(broker.heartbeat))


#: Stands for what is no text.
ODD = "\ufffd"
_NEVER = datetime.fromtimestamp(0, tz=UTC)
#: A date that cannot be is any of these.
_NO_DATE = (ValueError, OverflowError, OSError)


def read_anything() -> None:
    """Have properties of messages read whatever is in them; to ask for it twice is harmless."""
    decode.METHODS["shortstr"] = text
    decode.METHODS["timestamp"] = moment
    decode.METHODS["table"] = table


def text(value: bytes) -> tuple[int, str]:
    """Read a short text, and say how many bytes it took."""
    if not value:
        raise ValueError("there is no text")
    end = value[0] + 1
    return end, value[1:end].decode("utf-8", "replace")


def moment(value: bytes) -> tuple[int, datetime]:
    """Read a time; one that no calendar has is the first of all."""
    try:
        return decode.timestamp(value)
    except _NO_DATE:
        return 8, _NEVER


def table(value: bytes) -> tuple[int, dict[str, Any]]:
    """Read a table; one that holds anything odd is empty."""
    try:
        return decode.field_table(value)
    except _NO_DATE:
        return 4 + int.from_bytes(value[:4], "big"), {}
