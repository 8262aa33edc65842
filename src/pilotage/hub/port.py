"""One port for programs, people and pilots: the first bytes say who calls.

`GET /link ` is a pilot or a client that goes on in frames; anything else is HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from email.utils import formatdate
from typing import Any, cast

import anyio
import anyio.lowlevel
import msgspec
import uvicorn
from anyio.abc import TaskStatus
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from pilotage.base import errors
from pilotage.event.socket import bind

#: The first bytes of a connection that carries frames.
LINK = b"GET /link "
_PORTS_TRIED = 20
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)
_log = logging.getLogger("pilotage.hub")

Link = Callable[[], asyncio.Protocol]


class PortLimits(msgspec.Struct, frozen=True):
    """Limits on connections and requests."""

    #: Seconds in which a caller must have said what it wants, and later in which each request
    #: must be whole.
    patience: float = 10.0
    #: Connections at once that have not said what they speak, and that speak HTTP.
    callers: int = 20_000
    http: int = 1000
    #: Seconds that an idle connection stays open.
    keep_alive: int = 15
    #: Seconds that answers under way have when we stop.
    grace: float = 3.0


USUAL = PortLimits()


def listen(host: str, port: int, *, roam: bool) -> socket.socket:
    """Open the port; if it is in use and was not requested, the next free one."""
    try:
        return bind(host, port)
    except errors.Conflict:
        if not roam:
            raise
    for near in range(port + 1, port + _PORTS_TRIED):
        try:
            return bind(host, near)
        except errors.Conflict:
            continue
    return bind(host, 0)


async def serve(
    app: ASGIApp,
    link: Link,
    opened: socket.socket,
    *,
    tls: ssl.SSLContext | None = None,
    limits: PortLimits = USUAL,
    closing: Callable[[], None] = lambda: None,
    task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; `closing` ends streaming answers.

    The caller closes the connections that `link` was given.
    """
    front = _Front(app, link, limits)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        front.caller, sock=opened, ssl=tls, backlog=2048,
        ssl_handshake_timeout=limits.patience if tls else None,
    )  # fmt: skip
    try:
        task_status.started(opened.getsockname()[1])
        while True:
            front.tick()
            await anyio.sleep(1)
    finally:
        server.close()
        closing()
        with anyio.CancelScope(shield=True):
            await front.close()


class _Front:
    """A connected program and its language."""

    def __init__(self, app: ASGIApp, link: Link, limits: PortLimits) -> None:
        self.link = link
        self.limits = limits
        #: Callers that have not said what they want.
        self.callers: set[_Caller] = set()
        self._config = uvicorn.Config(
            app, lifespan="off", log_config=None, log_level="warning", access_log=False, ws="none",
            proxy_headers=False, server_header=False, timeout_keep_alive=limits.keep_alive,
        )  # fmt: skip
        self._config.load()
        self._state = ServerState()
        #: When each connection was first seen without a request that is whole.
        self._waiting: dict[Any, float] = {}

    def caller(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return _Caller(self)

    @property
    def full(self) -> bool:
        """Whether there is no room for another connection that speaks HTTP."""
        return len(self._state.connections) >= self.limits.http

    def http(self) -> asyncio.Protocol:
        """Return the HTTP protocol of a connection."""
        make: Callable[..., asyncio.Protocol] = self._config.http_protocol_class
        return make(config=self._config, server_state=self._state, app_state={})

    def tick(self) -> None:
        """Write the date for all answers, and close connections that take too long to ask."""
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        now = asyncio.get_running_loop().time()
        stuck = {one for one in self._state.connections if _half_asked(one)}
        self._waiting = {one: self._waiting.get(one, now) for one in stuck}
        for one, since in self._waiting.items():
            if now - since >= self.limits.patience:
                one.transport.abort()

    async def close(self) -> None:
        """Give pending answers a moment to finish, then close."""
        for caller in list(self.callers):
            caller.hang_up()
        for one in list(self._state.connections):
            one.shutdown()
        with anyio.move_on_after(self.limits.grace):
            while self._busy():  # noqa: ASYNC110 - uvicorn does not notify
                await anyio.sleep(0.02)
        for task in list(self._state.tasks):
            task.cancel()
        for one in list(self._state.connections):
            one.transport.abort()
        # One turn of the loop, so that every connection is closed.
        await anyio.lowlevel.checkpoint()

    def _busy(self) -> bool:
        return any(_answering(one) for one in self._state.connections)


def _answering(connection: Any) -> bool:  # noqa: ANN401 - one of several classes of uvicorn's
    return connection.cycle is not None and not connection.cycle.response_complete


def _half_asked(connection: Any) -> bool:  # noqa: ANN401 - one of several classes of uvicorn's
    """Return whether a connection neither waits for our answer nor is idle between two requests."""
    return not _answering(connection) and connection.timeout_keep_alive_task is None


class _Caller(asyncio.Protocol):
    """Detects the protocol of a connection, then hands it over."""

    def __init__(self, front: _Front) -> None:
        self._front = front
        self._said = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to listen, if there is room."""
        # uvloop's transports are of no class that asyncio knows.
        self._transport = cast("asyncio.Transport", transport)
        if len(self._front.callers) >= self._front.limits.callers:
            self._transport.abort()
            return
        # asyncio does this only for sockets that were opened with the number of TCP; without it an
        # answer in two parts waits 40 ms for the other side.
        with contextlib.suppress(OSError):  # it has left already
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._front.callers.add(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._front.limits.patience, self.hang_up)

    def data_received(self, data: bytes) -> None:
        """Decide as soon as it can be told."""
        self._said += data
        if len(self._said) < len(LINK) and LINK.startswith(self._said):
            return
        front, transport = self._front, self._transport
        self._done()
        if transport is None or transport.is_closing():
            return
        wants_link = self._said.startswith(LINK)
        if not wants_link and front.full:
            _log.warning("more than %d connections: one is refused", front.limits.http)
            transport.write(_FULL)
            transport.close()
            return
        heir = front.link() if wants_link else front.http()
        transport.set_protocol(heir)
        heir.connection_made(transport)
        heir.data_received(self._said)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop it."""
        del exc
        self._done()

    def hang_up(self) -> None:
        """Close a connection that never said what it wants."""
        self._done()
        if self._transport is not None:
            self._transport.abort()

    def _done(self) -> None:
        self._front.callers.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
