"""Open a connection to the hub asynchronously, directly or through a proxy."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import socket

from pilotage.base import errors
from pilotage.node import dial
from pilotage.node.dial import Route

_CONNECT_S = 15.0
_HEAD_BYTES = 1 << 14
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def route(hub: str, proxy: str | None = None, ca: str = "") -> Route:
    """Parse the address of the hub; plain HTTP is allowed here."""
    try:
        return dial.route(hub, "direct", proxy, ca, insecure=True)
    except (dial.RouteError, ValueError) as error:
        raise errors.UsageError(str(error), hint="such as https://hub.example.org:8420") from None


def is_near(way: Route) -> bool:
    """Return whether a connection does not leave this machine."""
    if way.via[0]:
        return False
    try:
        return ipaddress.ip_address(way.host).is_loopback
    except ValueError:
        return way.host == "localhost"


async def reach(way: Route) -> Stream:
    """Open a connection on which nothing has been said to the hub yet."""
    host, port = way.via if way.via[0] else (way.host, way.port)
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(host, port)
            with contextlib.ExitStack() as undo:
                undo.callback(writer.close)
                _keep_alive(writer)
                if way.via[0]:
                    await _ask_proxy(reader, writer, way)
                undo.pop_all()
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        why = str(error) or "no answer in time"
        raise errors.Unavailable(f"cannot reach {host}:{port}: {why}") from error
    return reader, writer


async def encrypt(writer: asyncio.StreamWriter, way: Route) -> None:
    """Start TLS, if the route asks for it."""
    if way.tls is None:
        return
    try:
        async with asyncio.timeout(_CONNECT_S):
            await writer.start_tls(way.tls, server_hostname=way.host)
    except (OSError, TimeoutError) as error:
        why = str(error) or "no answer in time"
        raise errors.Unavailable(f"cannot connect to {way.host}:{way.port}: {why}") from error


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection in any state."""
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            await writer.wait_closed()


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    link: socket.socket = writer.get_extra_info("socket")
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


async def _ask_proxy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Route
) -> None:
    host = f"[{way.host}]" if ":" in way.host else way.host
    lines = [f"CONNECT {host}:{way.port} HTTP/1.1", f"Host: {host}:{way.port}"]
    if way.login:
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(way.login.encode()).decode()}")
    writer.write("\r\n".join([*lines, "", ""]).encode())
    head = await reader.readuntil(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")[2]
    if not status.startswith("2") or len(head) > _HEAD_BYTES:
        raise OSError(f"the proxy answers {status[:100]}")
