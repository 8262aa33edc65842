"""A connection that carries several simulated pilots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import cast

from bench.swarm.pilot import Phase, Pilot
from bench.swarm.wire import ASK, Reader, pack

#: Called with a pilot and the jobs that begin there.
Begin = Callable[[Pilot, list[str]], None]


class Link(asyncio.Protocol):
    """Carries what pilots say and hear."""

    def __init__(
        self,
        pilots: Iterable[Pilot],
        begin: Begin,
        now: Callable[[], float],
        joined: asyncio.Event,
    ) -> None:
        """Speak for pilots; `begin` may end a job at once, `joined` is set when all may work."""
        self.pilots = {one.place: one for one in pilots}
        #: Set when the connection is gone.
        self.lost = asyncio.Event()
        self._joined = joined
        self._begin = begin
        self._now = now
        self._reader = Reader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for frames, and greet without waiting for the answer."""
        # uvloop's transports are of no class that asyncio knows.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(ASK)
        self.speak(self.pilots.values())

    def data_received(self, data: bytes) -> None:
        """Hand answers to their pilots, and send what they have to say, in one piece."""
        heard = []
        for answer in self._reader.feed(data):
            pilot = self.pilots[answer.p]
            if begun := pilot.take(answer):
                self._begin(pilot, begun)
            heard.append(pilot)
        self.speak(heard)
        if not self._joined.is_set() and all(
            one.phase in {Phase.READY, Phase.GONE} for one in self.pilots.values()
        ):
            self._joined.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the pilots know."""
        del exc
        self._transport = None
        for pilot in self.pilots.values():
            pilot.cut()
        self.lost.set()

    def speak(self, pilots: Iterable[Pilot]) -> None:
        """Send what these pilots have to say."""
        if self._transport is None:
            return
        now = self._now()
        messages = [message for one in pilots if (message := one.say(now)) is not None]
        if messages:
            self._transport.write(b"".join(map(pack, messages)))

    def break_off(self) -> None:
        """Be gone without a word."""
        if self._transport is not None:
            self._transport.abort()
