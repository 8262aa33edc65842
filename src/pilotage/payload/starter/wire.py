"""The connection to the program that orders payloads."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from .crash import point
from .payloads import encode

_BULK = 1 << 18


class StarterWire:
    """Lines of JSON on a socket, never waiting for the other side."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self.socket = socket.socket(fileno=fd)
        self.socket.setblocking(False)
        #: Whether the other side has died or left.
        self.gone = False
        #: Whether the other side must read before more can be sent.
        self.full = False
        self._inward = b""
        self._outward = bytearray()
        self._ended = 0

    @property
    def pending(self) -> bool:
        """Return whether something waits to be sent."""
        return bool(self._outward) and not self.gone

    def receive(self) -> list[dict[str, Any]]:
        """Take the orders that have arrived."""
        try:
            data = self.socket.recv(_BULK)
        except BlockingIOError:
            return []
        except ConnectionError:
            data = b""
        self.gone = not data
        *lines, self._inward = (self._inward + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def send(self, message: dict[str, Any]) -> None:
        """Put a report into the next bulk."""
        self._outward += encode(message) + b"\n"
        self._ended += message["op"] == "ended"

    def flush(self) -> None:
        """Send what the other side can take now."""
        self.full = False
        while self.pending:
            try:
                del self._outward[: self.socket.send(self._outward)]
            except BlockingIOError:
                self.full = True
                return
            except ConnectionError:
                self.gone = True
        for _ in range(self._ended):
            point("starter.reported")
        self._ended = 0
