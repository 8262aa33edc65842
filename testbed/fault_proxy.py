"""A way to a server that can be made a bad one: shut, cut, silent, slow or late, either direction.

    with FaultProxy(server_port) as proxy:
        connect(proxy.port)
        proxy.blackhole()        # both sides think that they are connected
        proxy.well()

What it is told holds for connections that are there as well as for new ones, from the moment that
the call returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeVar

from .ports import free_port

#: From the client to the server, and back.
Direction = Literal["up", "down"]
BOTH: tuple[Direction, ...] = ("up", "down")
#: A connection that is closed with this is reset: what was on its way is lost.
_RESET = struct.pack("ii", 1, 0)
_PIECE = 1 << 16
_T = TypeVar("_T")


@dataclass(frozen=True)
class Way:
    """How data goes in one direction."""

    #: Whether it goes at all.
    open: bool = True
    #: Bytes in a second; 0 means any number.
    rate: float = 0.0
    #: Seconds by which each piece is late.
    delay: float = 0.0

    def due(self, size: int) -> float:
        """Say after how long a piece has gone through."""
        return self.delay + (size / self.rate if self.rate else 0.0)

    @property
    def piece(self) -> int:
        """Say how much is taken at once: little of a slow one, so that it flows evenly."""
        return max(1, min(_PIECE, int(self.rate / 10))) if self.rate else _PIECE


@dataclass
class _Flow:
    """One direction of all connections."""

    way: Way = Way()
    count: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def set(self, way: Way) -> None:
        self.way = way
        self.changed.set()
        self.changed = asyncio.Event()

    async def through(self, size: int) -> None:
        """Return once a piece may arrive; the way may change meanwhile."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            wait = begun + self.way.due(size) - loop.time() if self.way.open else None
            if wait is not None and wait <= 0:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), wait)


class FaultProxy:
    """Listens on the loopback, or on another address of this machine, and leads to a server."""

    def __init__(
        self, target: int, *, target_host: str = "127.0.0.1", host: str = "127.0.0.1"
    ) -> None:
        """Take the port of the server; nothing happens before `with`."""
        self._target = target_host, target
        self.host = host
        self.port = free_port()
        #: Connections that came so far.
        self.connections = 0
        self._flows: dict[Direction, _Flow] = {each: _Flow() for each in BOTH}
        self._listener: socket.socket | None = None
        self._live: dict[asyncio.Task[None], list[socket.socket]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._shut)
        self._do(self._reset)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- what a test says ------------------------------------------------------------------------

    def well(self) -> None:
        """Have everything go through again; what waited in connections arrives."""
        self._set(BOTH, lambda _: Way())
        self._do(self._listen)

    def refuse(self, *, cut: bool = True) -> None:
        """Take no connections, as a server that is down; `cut` also resets those there are."""
        self._do(self._shut)
        if cut:
            self.cut()

    def cut(self) -> None:
        """Reset the connections that there are; new ones can be made."""
        self._do(self._reset)

    def blackhole(self, *directions: Direction) -> None:
        """Take connections and let nothing through, not even that somebody closed: half open."""
        self._set(directions, lambda way: replace(way, open=False))

    def slow(self, rate: float, *directions: Direction) -> None:
        """Let so many bytes through in a second, in each connection."""
        self._set(directions, lambda way: replace(way, rate=rate))

    def delay(self, seconds: float, *directions: Direction) -> None:
        """Have everything arrive later."""
        self._set(directions, lambda way: replace(way, delay=seconds))

    @property
    def live(self) -> int:
        """Count connections that there are."""
        return len(self._live)

    def passed(self, direction: Direction) -> int:
        """Count bytes that arrived."""
        return self._flows[direction].count

    # -- in the thread ---------------------------------------------------------------------------

    def _do(self, act: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(30)

    def _set(self, directions: tuple[Direction, ...], change: Callable[[Way], Way]) -> None:
        async def act() -> None:
            for each in directions or BOTH:
                flow = self._flows[each]
                flow.set(change(flow.way))

        self._do(act)

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server((self.host, self.port), backlog=256)
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    async def _shut(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            # Who is connected already as far as the kernel goes is not refused.
            self._accept(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                near, _ = listener.accept()
                near.setblocking(False)
                self.connections += 1
                ends = [near]
                task = self._loop.create_task(self._serve(ends))
                self._live[task] = ends
                task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        for end in self._live.pop(task):
            end.close()

    async def _reset(self) -> None:
        live = dict(self._live)
        for ends in live.values():
            _break(ends)
        for task in live:
            task.cancel()
        if live:
            await asyncio.wait(live)

    async def _serve(self, ends: list[socket.socket]) -> None:
        """Lead one connection on until both sides closed it, or one broke."""
        [near] = ends
        # A server behind a black hole does not hear of who comes.
        await self._flows["up"].through(0)
        far = socket.socket()
        ends.append(far)
        far.setblocking(False)
        try:
            await self._loop.sock_connect(far, self._target)
            for end in ends:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(self._flows["up"], near, far))
                both.create_task(self._pump(self._flows["down"], far, near))
        except* OSError:
            # One side broke it, or was never there: the other sees it broken, too.
            _break(ends)

    async def _pump(self, flow: _Flow, source: socket.socket, sink: socket.socket) -> None:
        while data := await self._loop.sock_recv(source, _PIECE):
            while data:
                # The way may have changed since this was read.
                size = min(len(data), flow.way.piece)
                await flow.through(size)
                await self._loop.sock_sendall(sink, data[:size])
                flow.count += size
                data = data[size:]
        await flow.through(0)
        sink.shutdown(socket.SHUT_WR)


def _break(ends: list[socket.socket]) -> None:
    """Have sockets be reset when they are closed."""
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
