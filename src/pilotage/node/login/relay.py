"""A TCP relay on the login node for worker nodes without a network: raw bytes to one port."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

_BULK = 1 << 18
_OPEN_S = 30.0
#: How long a program whose connection was cut may take to end, and to close its relays.
_LEAVING_S = 10.0
_PAUSE_S = 0.1

_turn = threading.Lock()
_doors: dict[tuple[str, int], int] = {}


def opened(host: str, port: int, wanted: int | None = None) -> dict[str, Any]:
    """Listen for connections to a port of this node; reuse the relay if there is one."""
    with _turn:
        if (host, port) not in _doors:
            # A relay of our own does not go away, so that there is nothing to wait for.
            patience = 0.0 if wanted in _doors.values() else _LEAVING_S
            _doors[host, port] = _Door(host, port, wanted or 0, patience).listen()
        return {"port": _doors[host, port]}


class _Door(threading.Thread):
    """A thread with a loop for all its connections."""

    def __init__(self, host: str, port: int, wanted: int, patience: float) -> None:
        super().__init__(name="relay", daemon=True)
        self._host = host
        self._port = port
        self._wanted = wanted
        self._patience = patience
        self._number = 0
        self._error: OSError | None = None
        self._ready = threading.Event()

    def listen(self) -> int:
        """Open it, and return its number."""
        self.start()
        self._ready.wait(_OPEN_S)
        if self._error is not None:
            raise self._error
        return self._number

    def run(self) -> None:
        """Relay all connections."""
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        # With port 0 each address would get a number of its own.
        host = self._host or "0.0.0.0"  # noqa: S104 - worker nodes come from anywhere
        server = await self._open(host)
        self._number = server.sockets[0].getsockname()[1]
        self._ready.set()
        await server.serve_forever()

    async def _open(self, host: str) -> asyncio.Server:
        """Listen under the number that is wanted, or under any if that is in use."""
        until = time.monotonic() + self._patience
        while self._wanted:
            try:
                return await asyncio.start_server(self._pass, host, self._wanted)
            except OSError:
                if time.monotonic() >= until:
                    break
                await asyncio.sleep(_PAUSE_S)
        return await asyncio.start_server(self._pass, host, 0)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inward, outward = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        try:
            with contextlib.suppress(OSError):
                await asyncio.gather(_pump(reader, outward), _pump(inward, writer))
        finally:
            outward.close()
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes one way until there are no more."""
    while data := await reader.read(_BULK):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
