"""The interface of every bus: publish, subscribe, acknowledge and request."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import Protocol

import msgspec


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
