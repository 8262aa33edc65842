"""A connection of frames that is opened again when it breaks, with growing pauses."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import ssl
import threading
from typing import Any, Callable

from . import frame, spool
from .dial import DialError, Route, dial

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
        """Return how many bytes wait to be sent."""
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
        """Close the socket."""
        with contextlib.suppress(OSError):
            self.socket.close()


_log = logging.getLogger("pilot")
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0
_SETTLE_S = 2.0


def pause(failures: int, dice: random.Random, longest: float = _LONGEST_PAUSE_S) -> float:
    """Return the pause after a number of failures in a row, with jitter."""
    bound = min(longest, _FIRST_PAUSE_S * 2.0 ** min(failures, 20))
    return bound * dice.uniform(0.5, 1.0)


class HubLink:
    """At most one connection to the hub; a thread opens it, so that nothing else waits."""

    def __init__(self, way: Route, wake: Callable[[], None], dice: random.Random) -> None:
        #: The connection, if there is one.
        self.channel: Channel | None = None
        #: Why there is none.
        self.trouble = ""
        #: Whether no connection is wanted any more.
        self.given_up = False
        #: The longest pause between two attempts.
        self.longest = _LONGEST_PAUSE_S
        self._way = way
        self._wake = wake
        self._dice = dice
        self._failures = 0
        #: The error that was logged last, so that each is logged once.
        self._said = ""
        self._due = 0.0
        self._caller: threading.Thread | None = None
        self._found: Channel | None = None

    def attend(self, now: float) -> bool:
        """Open a connection if it is time to; return whether there is a new one."""
        if self.channel is not None or self.given_up:
            return False
        if self._caller is None:
            if now >= self._due:
                self._caller = threading.Thread(target=self._dial, name="dial", daemon=True)
                self._caller.start()
            return False
        if self._caller.is_alive():
            return False
        self._caller = None
        self.channel, self._found = self._found, None
        if self.channel is None:
            if self.trouble != self._said:
                self._said = self.trouble
                _log.warning("no connection: %s; trying again", self.trouble)
            self.fail(now)
        return self.channel is not None

    def fail(self, now: float) -> None:
        """Postpone the next attempt."""
        self._due = now + pause(self._failures, self._dice, self.longest)
        self._failures += 1

    def cut(self, why: str, now: float) -> None:
        """Close the connection."""
        if self.channel is not None:
            self.channel.close()
        self.channel = None
        self.trouble = why
        self.fail(now)

    def give_up(self) -> None:
        """Open no connection any more."""
        self.given_up = True

    def close(self) -> None:
        """End the connection in a way that the other side can see."""
        self.give_up()
        if self.channel is not None:
            self.channel.close()
        spool.settle(_SETTLE_S)

    def succeed(self) -> None:
        """Note that all is well, so that the next attempt need not wait."""
        self._failures = 0
        self.trouble = self._said = ""

    def wait(self, now: float) -> float | None:
        """Return in how many seconds the next attempt is due."""
        if self.channel is not None or self._caller is not None or self.given_up:
            return None
        return max(0.0, self._due - now)

    def _dial(self) -> None:
        try:
            self._found = Channel(*dial(self._way))
        except DialError as error:
            self.trouble = str(error)
        finally:
            self._wake()
