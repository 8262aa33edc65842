"""Frames on a socket, private or not, never waiting for the other side."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Any

from . import frame

_BULK = 1 << 18


class Channel:
    """A connection to the hub."""

    def __init__(self, link: socket.socket, rest: bytes = b"") -> None:
        self.socket = link
        #: Why the connection is no more; empty while it is.
        self.gone = ""
        #: Whether the other side must read before more can be sent.
        self.full = False
        self._reader = frame.Reader()
        self._rest = rest
        self._outward = bytearray()

    @property
    def waiting(self) -> int:
        """Tell how many bytes wait to be sent."""
        return len(self._outward)

    def send(self, body: str) -> None:
        """Put a frame into the next bulk."""
        self._outward += frame.pack(body)

    def flush(self) -> None:
        """Send what the other side can take now."""
        self.full = False
        while self._outward and not self.gone:
            try:
                del self._outward[: self.socket.send(self._outward[:_BULK])]
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                self.full = True
                return
            except OSError as error:
                self.gone = str(error) or "the connection broke"

    def receive(self) -> list[dict[str, Any]]:
        """Take the frames that have arrived."""
        found: list[dict[str, Any]] = []
        data, self._rest = self._rest, b""
        while not self.gone:
            try:
                found += self._reader.feed(data)
                # Until it says so: what TLS holds already wakes no selector.
                data = self.socket.recv(_BULK)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except (OSError, frame.FrameError) as error:
                self.gone = str(error) or "the connection broke"
            else:
                if not data:
                    self.gone = "the hub closed the connection"
        return found

    def close(self) -> None:
        """Let go of the socket."""
        with contextlib.suppress(OSError):
            self.socket.close()
