"""Batches of messages that arrive together, as many as one transaction takes."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import anyio

from pilotage.base import errors
from pilotage.bus.port import Bus, Message

#: Messages, and bytes of them, that go into one transaction.
MOST = 400
_MOST_BYTES = 8_000_000
#: How long to rest before messages go back that could not be written, in seconds.
_REST_S = 5.0


async def take(
    incoming: AsyncIterator[Message], act: Callable[[list[Message]], Awaitable[None]]
) -> None:
    """Process available messages in batches until cancelled; more are received meanwhile."""
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
    """Remove messages for one transaction from the queue."""
    taken: list[Message] = []
    size = 0
    while here and len(taken) < MOST and size < _MOST_BYTES:
        taken.append(here.popleft())
        size += len(taken[-1].body)
    return taken


async def settle(
    bus: Bus, messages: Sequence[Message], take: Callable[[Sequence[Message]], Awaitable[None]],
    log: logging.Logger,
) -> None:  # fmt: skip
    """Process messages, and acknowledge them; a faulty one does not stop others."""
    try:
        await take(messages)
    except errors.StoreUnavailable as error:
        words = "%s; %d messages are returned to the broker"
        log.error(words, error, len(messages))  # noqa: TRY400 - the error says it all
        await anyio.sleep(_REST_S)
        await bus.ack(*messages, done=False)
    except Exception:
        # Its content is requested again, if it matters.
        if len(messages) == 1:
            log.exception("a message by %s: a mistake in Pilotage", messages[0].topic)
            await bus.ack(*messages)
            return
        for one in messages:
            await settle(bus, [one], take, log)
    else:
        await bus.ack(*messages)
