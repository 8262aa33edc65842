"""Many simulated pilots in one process."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import random
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from bench.swarm.link import Link
from bench.swarm.pilot import Node, Phase, Pilot

_HOST = "127.0.0.1"
_PAUSE_S = 0.05
_T = TypeVar("_T")


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What the pilots of a swarm are like."""

    port: int
    node: Node
    #: Seconds that a payload takes, at least and at most; nothing if it never ends.
    payload: tuple[float, float] | None = (0.0, 0.0)
    #: Pilots on one connection.
    together: int = 1
    tls: ssl.SSLContext | None = None


class Start(msgspec.Struct, frozen=True, gc=False):
    """The start of a payload, as the pilot saw it."""

    key: str
    pilot: int
    time: float


class Line:
    """Pilots that share a connection, which is opened again whenever it breaks."""

    def __init__(self, swarm: Swarm, pilots: list[Pilot]) -> None:
        self.pilots = pilots
        #: Set when all of them may take work, or are refused.
        self.joined = asyncio.Event()
        self._swarm = swarm
        self._link: Link | None = None

    async def stay(self, gate: asyncio.Semaphore) -> None:
        """Connect when the gate lets them, and again whenever the connection breaks."""
        async with gate:
            await self._open()
            await self._first()
        while any(one.phase is not Phase.GONE for one in self.pilots):
            if self._link is not None:
                await self._link.lost.wait()
            await asyncio.sleep(_PAUSE_S * random.uniform(0.5, 1.5))
            await self._open()

    async def _open(self) -> None:
        shape = self._swarm.shape
        self._link = link = Link(self.pilots, self._begin, time.time, self.joined)
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: link, _HOST, shape.port, ssl=shape.tls)
        except OSError:
            link.lost.set()

    async def _first(self) -> None:
        """Wait until all have joined, or the connection broke before."""
        lost = self._link.lost.wait() if self._link is not None else asyncio.sleep(0)
        waits = {asyncio.ensure_future(one) for one in (self.joined.wait(), lost)}
        _, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for one in rest:
            one.cancel()

    def die(self) -> None:
        """Be gone without a word, with all that runs here."""
        for pilot in self.pilots:
            pilot.phase = Phase.GONE
            pilot.held.clear()
        self.joined.set()
        if self._link is not None:
            self._link.break_off()

    def _begin(self, pilot: Pilot, keys: list[str]) -> None:
        swarm = self._swarm
        now = time.time()
        swarm.starts += [Start(key, pilot.id, now) for key in keys]
        if swarm.began is not None:
            swarm.began(keys)
        payload = swarm.shape.payload
        if payload is None:
            return
        if payload[1] == 0:
            for key in keys:
                pilot.end(key)
            return
        loop = asyncio.get_running_loop()
        for key in keys:
            loop.call_later(random.uniform(*payload), self._end, pilot, key)

    def _end(self, pilot: Pilot, key: str) -> None:
        pilot.end(key)
        if self._link is not None:
            self._link.speak([pilot])


class Swarm:
    """All pilots, and what they saw."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        #: All payloads that ever began here, in order.
        self.starts: list[Start] = []
        #: Called with jobs that begin.
        self.began: Callable[[list[str]], None] | None = None
        self.lines: list[Line] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def join(self, pilots: int, at_once: int = 200) -> float:
        """Let so many more pilots join; return how long it took until all may take work."""
        gate = asyncio.Semaphore(at_once)
        begun = time.perf_counter()
        lines = [self.add(gate) for _ in range(pilots // self.shape.together)]
        await asyncio.gather(*(line.joined.wait() for line in lines))
        if refused := [one.trouble for line in lines for one in line.pilots if one.trouble]:
            raise RuntimeError(f"{len(refused)} pilots were refused: {refused[0]}")
        return time.perf_counter() - begun

    def add(self, gate: asyncio.Semaphore) -> Line:
        """Let the pilots of one more connection join, as soon as the gate lets them."""
        several = [Pilot(self.shape.node, place) for place in range(self.shape.together)]
        line = Line(self, several)
        self.lines.append(line)
        task = asyncio.get_running_loop().create_task(line.stay(gate))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return line

    def kill(self, line: Line) -> None:
        """Let pilots vanish."""
        line.die()
        self.lines.remove(line)

    def close(self) -> None:
        """Let all pilots vanish."""
        for line in self.lines:
            line.die()
        for task in self._tasks:
            task.cancel()


@contextmanager
def swarm(shape: Shape) -> Iterator[Swarm]:
    """Have a swarm for a while."""
    one = Swarm(shape)
    try:
        yield one
    finally:
        one.close()


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a measurement on the fastest event loop there is."""
    loops = importlib.import_module("uvloop" if importlib.util.find_spec("uvloop") else "asyncio")
    with asyncio.Runner(loop_factory=loops.new_event_loop) as runner:
        return runner.run(work)
