"""A hub's end of the link that serves any bus, for tests of the carrier alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from pilotage.bus.port import Bus
from pilotage.edge.port.bus import HubBus, LinkTiming
from pilotage.edge.port.serve import AgentSession
from pilotage.link import connect
from pilotage.link.dialer import HubConnection
from pilotage.pilot import messages

#: Returns the bus as a user of that name sees it.
Known = Callable[[str], Bus]


@asynccontextmanager
async def serving(known: Known) -> AsyncIterator[int]:
    """Serve what users of that name may do; return the port."""
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(messages.UPGRADED)
        length = int.from_bytes(await reader.readexactly(4), "big")
        hello = messages.read(await reader.readexactly(length))
        assert isinstance(hello, messages.Agent)
        writer.write(messages.answer(hello, {}))
        await AgentSession(known(hello.site), reader, writer, hello.beat).run()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.get_running_loop().create_task(serve(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


QUICK = LinkTiming(retry=0.2)


def dialled(port: int, user: str, pace: LinkTiming = QUICK) -> HubBus:
    """Make a bus that dials such a hub."""
    way = connect.route(f"http://127.0.0.1:{port}")

    def dial(
        hear: Callable[[dict[str, Any]], None],
    ) -> contextlib.AbstractAsyncContextManager[HubConnection]:
        return HubConnection.open(
            way, "agent", hear, versions=(1, 1), site=user, token="", key="", beat=pace.beat
        )

    return HubBus(dial, pace)
