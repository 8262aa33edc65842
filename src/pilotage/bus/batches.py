"""Messages that have come together go together: as many as one transaction takes."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio

from pilotage.bus.port import Message

#: Messages, and bytes of them, that go into one transaction.
MOST = 400
_MOST_BYTES = 8_000_000


async def take(
    incoming: AsyncIterator[Message], act: Callable[[list[Message]], Awaitable[None]]
) -> None:
    """Have what is there dealt with, again and again until cancelled; more comes in meanwhile."""
    here: deque[Message] = deque()
    came = [anyio.Event()]

    async def pump() -> None:
        async for message in incoming:
            here.append(message)
            came[0].set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pump)
        while True:
            await came[0].wait()
            came[0] = anyio.Event()
            while here:
                await act(_some(here))


def _some(here: deque[Message]) -> list[Message]:
    """Take out what is there, as much as goes into one transaction."""
    taken: list[Message] = []
    size = 0
    while here and len(taken) < MOST and size < _MOST_BYTES:
        taken.append(here.popleft())
        size += len(taken[-1].body)
    return taken
