"""The thread that holds the connection of the synchronous client."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from pilotage.base import errors
from pilotage.client.core import Core
from pilotage.client.model import CallRange, Delivery, Ticket
from pilotage.client.where import Address

_log = logging.getLogger("pilotage.client")
_BULK = 1 << 18
_CONNECT_S = 10.0
_PAUSES_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
_AGAIN = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Pump:
    """Moves bytes between a core and the hub; any thread may add work."""

    def __init__(self, address: Address, core: Core) -> None:
        """Connect and log in, or raise what stands in the way."""
        self._address, self._core = address, core
        self._context = address.context()
        self._lock = threading.Lock()
        self._asleep = False
        self._closing = False
        self._give_up = 0.0
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.ExitStack() as undo:
            undo.callback(self._close_pipe)
            first = self._connect()
            undo.callback(first.close)
            self._log_in(first)
            undo.pop_all()
        self._thread = threading.Thread(
            target=self._run, args=(first,), name="pilotage-client", daemon=True
        )
        self._thread.start()

    # -- what any thread calls -------------------------------------------------------------------

    def add(self, spec: bytes, part: CallRange, fixed: int = 0) -> None:
        """Have calls made."""
        with self._lock:
            self._check()
            self._core.add(spec, part, fixed)
            eager = self._core.eager
        if eager:
            self._wake()

    def add_job(self, spec: bytes, ticket: Ticket) -> None:
        """Have a job run."""
        with self._lock:
            self._check()
            self._core.add_job(spec, ticket)
        self._wake()

    def add_call(self, spec: bytes, part: CallRange, binding: bytes) -> None:
        """Have a call made that is a job of its own."""
        with self._lock:
            self._check()
            self._core.add_call(spec, part, binding)
        self._wake()

    def ask(self, op: str, fields: dict[str, Any], ticket: Ticket) -> None:
        """Have a request answered."""
        with self._lock:
            self._check()
            self._core.ask(op, fields, ticket)
        self._wake()

    def drop(self, ticket: Ticket) -> None:
        """Forget a ticket."""
        with self._lock:
            self._core.drop(ticket)
        self._wake()

    def close(self, timeout: float = 30.0) -> None:
        """Send what is left and end; results that have not come never will."""
        with self._lock:
            self._closing = True
            self._give_up = time.monotonic() + timeout
        self._wake(sure=True)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _check(self) -> None:
        if self._core.refused is not None:
            raise self._core.refused
        if self._closing:
            raise errors.UsageError("the client is closed", hint="`pilotage.connect()` opens one")

    def _wake(self, *, sure: bool = False) -> None:
        if self._asleep or sure:
            self._asleep = False
            # It may be awake already, or have ended.
            with suppress(OSError):
                os.write(self._write, b".")

    # -- the thread ------------------------------------------------------------------------------

    def _run(self, first: socket.socket) -> None:
        channel: socket.socket | None = first
        tries = 0
        while not self._done():
            try:
                if channel is None:
                    channel = self._connect()
                self._converse(channel)
                tries = 0
            except (OSError, errors.Unavailable) as error:
                _log.info("the connection to %s is cut: %s", self._address.name, error)
            if channel is not None:
                tries = 0 if self._core.ready else tries
                channel.close()
                channel = None
            with self._lock:
                self._core.lost()
            if not self._done():
                self._sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
                tries += 1
        self._end()

    def _done(self) -> bool:
        if self._core.refused is not None:
            return True
        return self._closing and (not self._core.unsafe or time.monotonic() > self._give_up)

    def _end(self) -> None:
        error = self._core.refused or errors.Unavailable(
            "the client was closed before the result came", hint="the job continues"
        )
        with self._lock:
            left = list(self._core.fail(error))
        _hand_over(left)
        self._close_pipe()

    def _close_pipe(self) -> None:
        os.close(self._read)
        os.close(self._write)
        self._write = -1

    def _sleep(self, seconds: float) -> None:
        self._asleep = True
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        poll.poll(seconds * 1000)
        self._drain()

    def _connect(self) -> socket.socket:
        address = self._address
        try:
            channel = socket.create_connection((address.host, address.port), _CONNECT_S)
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                channel = self._context.wrap_socket(channel, server_hostname=address.host)
        except OSError as error:
            hint = "is the hub running, and is the address right?"
            raise errors.Unavailable(
                f"cannot reach the hub at {address.name}: {error}", hint=hint
            ) from error
        channel.setblocking(False)
        with self._lock:
            self._core.connected(time.monotonic())
        return channel

    def _log_in(self, channel: socket.socket) -> None:
        """Speak until the hub has let us in."""
        end = time.monotonic() + _CONNECT_S
        out = bytearray()
        while not self._core.ready and self._core.refused is None:
            self._step(channel, out, _CONNECT_S)
            if time.monotonic() > end:
                raise errors.Unavailable(f"the hub at {self._address.name} does not answer")
        if self._core.refused is not None:
            raise self._core.refused

    def _converse(self, channel: socket.socket) -> None:
        out = bytearray()
        while not self._done():
            self._step(channel, out)

    def _step(self, channel: socket.socket, out: bytearray, most: float = 30.0) -> None:
        now = time.monotonic()
        with self._lock:
            out += self._core.outgoing(now)
            wait = min(self._core.due(now), most)
            if self._core.stale(now):
                raise errors.Unavailable("the hub has not answered for long")
            self._asleep = True
        _send(channel, out)
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        poll.register(channel, select.POLLIN | (select.POLLOUT if out else 0))
        ready = {fd for fd, _ in poll.poll(wait * 1000)}
        self._asleep = False
        if self._read in ready:
            self._drain()
        if channel.fileno() in ready:
            self._receive(channel)

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._read, 4096)

    def _receive(self, channel: socket.socket) -> None:
        data = bytearray()
        closed = False
        try:
            while part := channel.recv(_BULK):
                data += part
            closed = True
        except _AGAIN:
            pass
        with self._lock:
            found = self._core.receive(bytes(data), time.monotonic()) if data else []
        _hand_over(found)
        if closed:
            raise errors.Unavailable("the hub has closed the connection")


def _send(channel: socket.socket, out: bytearray) -> None:
    """Send what can be sent now."""
    with suppress(*_AGAIN):
        while out:
            del out[: channel.send(out)]


def _hand_over(found: Iterable[Delivery]) -> None:
    for one in found:
        one.ticket.deliver(one)
