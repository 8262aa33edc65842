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
# It would log each problem a second time.
logging.getLogger("aiormq").setLevel(logging.CRITICAL)
#: Seconds before the first attempt to connect again; each later pause is twice as long.
_FIRST_S = 1.0
_FILES = "`ca`, `certificate` and `key` are PEM files; certificate and key belong together"
#: Errors that a broker may cause at any time.
TROUBLES = (aiormq.exceptions.AMQPError, OSError, TimeoutError, ConnectionError, RuntimeError)


class BrokerConnection:
    """A connection while it lasts."""

    def __init__(
        self, connection: AbstractConnection, channel: AbstractChannel, exchange: AbstractExchange
    ) -> None:
        self.connection = connection
        #: The channel for sending; the broker confirms each message.
        self.channel = channel
        self.exchange = exchange

    async def lost(self) -> None:
        """Return once the connection or its channel is over."""
        await race(self.connection.closed(), self.channel.closed())


class BrokerLink:
    """Keeps a connection; `line` waits for it."""

    def __init__(self, broker: Broker, chance: random.Random | None = None) -> None:
        """Prepare; `keep` starts it."""
        self._pauses = Pauses(Backoff(_FIRST_S, broker.retry, jitter=0.5), chance or dice())
        self._broker = broker
        self._line: BrokerConnection | None = None
        self._changed = anyio.Event()
        self._renewed = anyio.Event()
        #: Why there is no connection; empty if there is one.
        self.trouble = "not connected yet"

    @property
    def now(self) -> BrokerConnection | None:
        """The connection, if there is one."""
        return self._line

    async def line(self) -> BrokerConnection:
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
            _log.warning("broker %s: %s; retrying", self._broker.place, self.trouble)
            # Not all at the same moment: a broker that comes back is weak.
            with anyio.move_on_after(self._pauses.next()):
                await self._renewed.wait()

    def renew(self) -> None:
        """Reconnect with the current certificates."""
        self._renewed.set()
        self._renewed = anyio.Event()

    async def _renewal(self, line: BrokerConnection) -> bool:
        """Wait until a connection is lost or to be renewed; return whether it is to be renewed."""
        renewed, lost = await race(self._renewed.wait(), line.lost())
        return renewed and not lost

    def _set(self, line: BrokerConnection | None, trouble: str) -> None:
        self._line, self.trouble = line, trouble
        self._changed.set()
        self._changed = anyio.Event()

    @contextlib.asynccontextmanager
    async def _dialled(self) -> AsyncIterator[BrokerConnection]:
        broker = self._broker
        url = _url(broker)
        with anyio.fail_after(broker.patience), raise_silence_as_loss():
            context = await anyio.to_thread.run_sync(tls_context, broker)
            connection = await connect(url, context, broker.patience)
        try:
            with anyio.fail_after(broker.patience), raise_silence_as_loss():
                channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
                kind = aio_pika.ExchangeType.TOPIC
                await channel.declare_exchange(broker.dead, kind, durable=True)
                exchange = await channel.declare_exchange(broker.exchange, kind, durable=True)
            yield BrokerConnection(connection, channel, exchange)
        finally:
            await close(connection)


@contextlib.contextmanager
def raise_silence_as_loss() -> Iterator[None]:
    """Raise `ConnectionError` for a cancellation that was not requested here.

    The library cancels tasks that wait for a broker that has fallen silent.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ConnectionError("the broker has fallen silent") from error


async def connect(
    url: str | URL, context: ssl.SSLContext | None, patience: float
) -> AbstractConnection:
    """Connect; a failed attempt is closed at once, not by the garbage collector."""
    connection = aio_pika.Connection(aio_pika.connection.make_url(url), ssl_context=context)
    try:
        await connection.connect(timeout=patience)
    except BaseException:
        await connection.close()
        raise
    return connection


async def close(one: AbstractConnection | AbstractChannel) -> None:
    """Close a connection that may be broken already, also when cancelled."""
    with (
        anyio.move_on_after(2, shield=True),
        contextlib.suppress(*TROUBLES),
        raise_silence_as_loss(),
    ):
        await one.close()


def tls_context(broker: Broker) -> ssl.SSLContext | None:
    """Return the TLS settings, with the current certificates; none for an unencrypted URL."""
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


#: Replaces invalid UTF-8.
ODD = "\ufffd"
_NEVER = datetime.fromtimestamp(0, tz=UTC)
#: Errors for an invalid date.
_NO_DATE = (ValueError, OverflowError, OSError)


def read_anything() -> None:
    """Install lenient decoders for properties of messages."""
    decode.METHODS["shortstr"] = text
    decode.METHODS["timestamp"] = moment
    decode.METHODS["table"] = table


def text(value: bytes) -> tuple[int, str]:
    """Decode a short string; return its length in bytes, and the text."""
    if not value:
        raise ValueError("there is no text")
    end = value[0] + 1
    return end, value[1:end].decode("utf-8", "replace")


def moment(value: bytes) -> tuple[int, datetime]:
    """Decode a time; an invalid one is 1970."""
    try:
        return decode.timestamp(value)
    except _NO_DATE:
        return 8, _NEVER


def table(value: bytes) -> tuple[int, dict[str, Any]]:
    """Decode a table; an invalid one is empty."""
    try:
        return decode.field_table(value)
    except _NO_DATE:
        return 4 + int.from_bytes(value[:4], "big"), {}
