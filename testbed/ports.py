"""Ports for servers that must know theirs beforehand: one way to choose, for beds and tests."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

from . import reserve

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Above what well-known servers and our own default have.
_FIRST = 12_000
#: Where the kernel begins by default, and the fewest ports worth choosing from.
_USUAL, _FEWEST = 32_768, 1_000
#: How many ports a process reserves at a time.
_BLOCK = 50


def below_ephemeral() -> range:
    """Return the ports below those that the kernel hands out to clients.

    A server that is killed and started again would find one of those taken by somebody's
    connection.
    """
    low = int(_EPHEMERAL.read_text().split()[0]) if _EPHEMERAL.exists() else _USUAL
    return range(_FIRST, low if low >= _FIRST + _FEWEST else _USUAL)


def _reserved(ports: range) -> Iterator[int]:
    """Yield ports that no other process is given while this one lives."""
    while True:
        first = _BLOCK * reserve.take("ports", len(ports) // _BLOCK)
        yield from ports[first : first + _BLOCK]


def is_free(port: int) -> bool:
    """Say whether nobody has a port, on any address."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


_left = _reserved(below_ephemeral())


def free_port() -> int:
    """Return a port that is free and reserved for this process, never the same one twice.

    A client that still looks for an earlier server must not find another in its place.
    """
    return next(port for port in _left if is_free(port))
