"""Reach the hub: directly, through a proxy, through the site's relay or through files."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import socket
import ssl
import urllib.parse
import urllib.request
from dataclasses import dataclass

from . import spool

_CONNECT_SECONDS = 15.0
#: A stream over files has pauses of its own.
_SPOOL_SECONDS = 60.0
_ANSWER_BYTES = 1 << 14
#: What OpenSSL calls certificates of another host name or address.
_OTHER_NAME = (62, 64)


class DialError(Exception):
    """The hub cannot be reached now."""


class RouteError(Exception):
    """The hub cannot be reached in the way that was asked for."""


@dataclass(frozen=True)
class Route:
    """The way to a hub."""

    #: The hub's own name, also when something else is in between.
    host: str
    port: int
    #: What makes the connection private; nothing if it is not.
    tls: ssl.SSLContext | None
    #: `direct`, `relay` or `spool`.
    kind: str = "direct"
    #: Host and port of the relay or of the proxy; an empty host if there is none.
    via: tuple[str, int] = ("", 0)
    #: What the proxy wants to see, as `user:password`.
    login: str = ""
    #: The shared folder.
    folder: str = ""


def route(
    hub: str,
    link: str = "direct",
    proxy: str | None = None,
    ca: str = "",
    *,
    insecure: bool = False,
) -> Route:
    """Understand where the hub is and how to get there."""
    url = urllib.parse.urlsplit(hub)
    if url.scheme not in {"https", "http"} or not url.hostname:
        raise RouteError(f"{hub!r} is no address of a hub; one looks like https://host:8420")
    host, port = url.hostname, url.port or 8420
    kind, _, place = link.partition(":")
    private = url.scheme == "https"
    if not private and not insecure and (kind != "direct" or not _is_loopback(host)):
        raise RouteError(
            f"{hub} is not encrypted and leaves this machine; use https, or --insecure"
        )
    tls = _context(ca) if private else None
    if kind == "spool" and place:
        return Route(host, port, tls, "spool", folder=place)
    if kind == "relay" and place:
        return Route(host, port, tls, "relay", _address(place))
    if link != "direct":
        raise RouteError(f"{link!r} is no link; use direct, relay:HOST:PORT or spool:DIR")
    via, login = _proxy(host, port, proxy) if private or proxy else (("", 0), "")
    return Route(host, port, tls, via=via, login=login)


def dial(way: Route) -> tuple[socket.socket, bytes]:
    """Open a connection that is ready for frames; what has arrived already comes with it."""
    try:
        raw = _reach(way)
    except OSError as error:
        raise DialError(f"cannot reach {_shown(way)}: {error}") from error
    try:
        raw.settimeout(_SPOOL_SECONDS if way.kind == "spool" else _CONNECT_SECONDS)
        if way.kind == "direct" and way.via[0]:
            _ask_proxy(raw, way)
        if way.tls is not None:
            raw = way.tls.wrap_socket(raw, server_hostname=way.host)
        rest = _upgrade(raw, way)
        raw.setblocking(False)
    except DialError:
        raw.close()
        raise
    except ssl.SSLCertVerificationError as error:
        raw.close()
        raise DialError(f"do not trust {_shown(way)}: {_distrust(error)}") from error
    except (OSError, ValueError) as error:
        raw.close()
        raise DialError(f"cannot connect to {_shown(way)}: {error}") from error
    return raw, rest


def _distrust(error: ssl.SSLCertVerificationError) -> str:
    """Return what is wrong with a certificate, and what to do about it."""
    why = error.verify_message
    if error.verify_code in _OTHER_NAME:
        return f"{why} Name it in `names` of `[hub]`, or call the hub by a name that it has"
    return f"{why}; give the hub's certificate.pem with --ca"


def _reach(way: Route) -> socket.socket:
    if way.kind == "spool":
        return spool.connect(way.folder)
    address = way.via if way.via[0] else (way.host, way.port)
    raw = socket.create_connection(address, timeout=_CONNECT_SECONDS)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return raw


def _ask_proxy(raw: socket.socket, way: Route) -> None:
    target = f"{_bracketed(way.host)}:{way.port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if way.login:
        login = base64.b64encode(way.login.encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {login}")
    raw.sendall("\r\n".join([*lines, "", ""]).encode())
    status, rest = _answer(raw)
    if not status.startswith("2") or rest:
        raise DialError(f"the proxy {way.via[0]}:{way.via[1]} answers {status}")


def _upgrade(raw: socket.socket, way: Route) -> bytes:
    host = f"{_bracketed(way.host)}:{way.port}"
    words = (
        f"GET /link HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: pilotage\r\n\r\n"
    )
    raw.sendall(words.encode())
    status, rest = _answer(raw)
    if not status.startswith("101"):
        raise DialError(f"{_shown(way)} is no hub: it answers {status}")
    return rest


def _answer(raw: socket.socket) -> tuple[str, bytes]:
    """Read the head of an HTTP answer; return its status and what came after it."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = raw.recv(4096)
        if not piece or len(data) > _ANSWER_BYTES:
            raise DialError("the answer ends before it is whole")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    first = head.split(b"\r\n", 1)[0].decode("latin-1")
    return first.partition(" ")[2], rest


def _context(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca or None)
    except OSError as error:
        raise RouteError(f"cannot read the certificates in {ca!r}: {error}") from error


def _proxy(host: str, port: int, proxy: str | None) -> tuple[tuple[str, int], str]:
    """Choose the proxy that was named, or the one that the environment names for this host."""
    if proxy is None and not urllib.request.proxy_bypass(f"{host}:{port}"):
        proxy = urllib.request.getproxies_environment().get("https")
    if not proxy or proxy == "none":
        return ("", 0), ""
    url = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if url.scheme != "http" or not url.hostname:
        raise RouteError("a proxy is given as http://[user:password@]host:port")
    login = ""
    if url.username is not None:
        words = (url.username, url.password or "")
        login = ":".join(urllib.parse.unquote(word) for word in words)
    return (url.hostname, url.port or 3128), login


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise RouteError(f"{text!r} is no HOST:PORT")
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _shown(way: Route) -> str:
    if way.kind == "spool":
        return f"the hub {way.host} through {way.folder}"
    through = f" through {way.via[0]}:{way.via[1]}" if way.via[0] else ""
    return f"{way.host}:{way.port}{through}"
