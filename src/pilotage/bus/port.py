"""The interface of every bus: publish, subscribe, acknowledge and request.

Messages that arrive together are taken in batches, as many as one transaction takes.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import Protocol

import anyio
import msgspec

from pilotage.base import errors


class MessageHeader(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery of a message, without its body."""

    #: Words joined by dots.
    topic: str
    #: Identifies this delivery; each delivery of the same message has its own.
    tag: int
    #: Chosen by the sender; a receiver recognises a message that it has had before.
    key: str = ""
    #: The sender, as verified by the bus itself, never by the body; empty if unknown.
    user: str = ""
    #: Whether it may have been delivered before.
    again: bool = False


class Message(MessageHeader, frozen=True, kw_only=True):
    """One delivery of a message."""

    body: bytes
    #: Answers a request; without a request, or too late, the answer is dropped.
    reply: Callable[[bytes], Awaitable[None]]


class Bus(Protocol):
    """Carries messages at least once.

    All subscribers to the same pattern share its messages; each pattern gets every message that
    matches. A pattern is remembered from its first subscriber on, and its messages wait while it
    has none.
    """

    async def publish(self, topic: str, body: bytes, key: str = "", *, heard: bool = False) -> None:
        """Send, and return once the bus has it; raise `Unavailable` if too many wait already.

        With `heard`, a message that no pattern takes is an error too, and not just gone.
        """
        ...

    def subscribe(
        self, pattern: str, *, ahead: int = 0
    ) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        """Receive; unacknowledged messages are delivered again after the `async with`.

        `ahead` limits deliveries that are not acknowledged.
        """
        ...

    async def ack(self, message: Message, *more: Message, done: bool = True) -> None:
        """Acknowledge messages; acknowledging an old delivery has no effect.

        Those that are not `done` go back and are delivered again.
        """
        ...

    async def request(self, topic: str, body: bytes, within: float) -> bytes:
        """Send and return the first answer; raise `TimedOut`, or `Unavailable` if none can come."""
        ...


def matches(pattern: str, topic: str) -> bool:
    """Return whether a topic matches: `*` is within one word, the word `**` any number of words."""
    return _regex(pattern).fullmatch("." + topic) is not None


@lru_cache(maxsize=4096)
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(_word(word) for word in pattern.split(".")), re.DOTALL)


def _word(word: str) -> str:
    if word == "**":
        return r"(?:\.[^.]*)*"
    if word == "*":
        return r"\.[^.]+"
    return r"\." + re.sub(r"(?:\\\*)+", "[^.]*", re.escape(word))


# -- batches ---------------------------------------------------------------------------------------


#: Messages, and bytes of them, that go into one transaction.
MOST_AT_ONCE = 400
_MOST_BYTES = 8_000_000
#: How long to rest before messages go back that could not be written, in seconds.
_REST_S = 5.0


async def take_batches(
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
    while here and len(taken) < MOST_AT_ONCE and size < _MOST_BYTES:
        taken.append(here.popleft())
        size += len(taken[-1].body)
    return taken


async def settle_batches(
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
            await settle_batches(bus, [one], take, log)
    else:
        await bus.ack(*messages)
