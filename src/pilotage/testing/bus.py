"""An in-process message bus for tests."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from pilotage.base import errors
from pilotage.bus.port import Message, matches

#: The most messages that wait at one pattern.
MOST_WAITING = 100_000


class _Queue:
    """The messages that wait for the subscribers of one pattern."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._count = anyio.Semaphore(0)

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: Message, *, back: bool = False) -> None:
        """Add a message at the end, or put it back before all others."""
        (self._messages.appendleft if back else self._messages.append)(message)
        self._count.release()

    async def take(self) -> Message:
        """Wait for the first message."""
        await self._count.acquire()
        return self._messages.popleft()


class _Receiver:
    """One subscriber, and the deliveries that it has not acknowledged."""

    def __init__(self, queue: _Queue, tags: itertools.count[int], ahead: int) -> None:
        self._held: dict[int, Message] = {}
        self._queue = queue
        self._tags = tags
        self._room = anyio.Semaphore(ahead) if ahead else None
        self._open = True

    def __aiter__(self) -> _Receiver:
        return self

    async def __anext__(self) -> Message:
        if not self._open:
            raise StopAsyncIteration
        if self._room:
            await self._room.acquire()
        try:
            taken = await self._queue.take()
        except BaseException:
            self._free()
            raise
        message = replace(taken, tag=next(self._tags))
        self._held[message.tag] = message
        return message

    def settle(self, tag: int, *, done: bool) -> None:
        """Forget a delivery, or let it be delivered again."""
        message = self._held.pop(tag, None)
        if message is None:
            return
        self._free()
        if not done:
            self._queue.put(replace(message, again=True), back=True)

    def close(self) -> None:
        """Let others have what was not acknowledged."""
        self._open = False
        for message in reversed(self._held.values()):
            self._queue.put(replace(message, again=True), back=True)

    def _free(self) -> None:
        if self._room:
            self._room.release()


class MemoryBus:
    """A bus that lives and dies with its process."""

    def __init__(self, user: str = "") -> None:
        """Begin with no patterns; `user` is who sends."""
        self._user = user
        self._queues: dict[str, _Queue] = {}
        self._receivers: set[_Receiver] = set()
        self._tags = itertools.count(1)

    def known_as(self, user: str) -> MemoryBus:
        """Return the same bus for somebody else."""
        other = MemoryBus(user)
        other._queues, other._receivers = self._queues, self._receivers
        other._tags = self._tags
        return other

    async def publish(self, topic: str, body: bytes, key: str = "", *, heard: bool = False) -> None:
        """Send; raise `Unavailable` if too many messages wait already."""
        await checkpoint()
        if not self._post(Message(topic, body, key, 0, _unheard, self._user)) and heard:
            raise errors.Unheard(f"no consumer for {topic!r}")

    @asynccontextmanager
    async def subscribe(
        self, pattern: str, *, ahead: int = 0
    ) -> AsyncIterator[AsyncIterator[Message]]:
        """Receive; what is not acknowledged at the end of the `async with` is delivered again."""
        receiver = _Receiver(self._queues.setdefault(pattern, _Queue()), self._tags, ahead)
        self._receivers.add(receiver)
        try:
            yield receiver
        finally:
            self._receivers.discard(receiver)
            receiver.close()

    async def ack(self, message: Message, *more: Message, done: bool = True) -> None:
        """Say that messages are dealt with; of an old delivery this means nothing."""
        await checkpoint()
        # Those that go back first come first.
        for one in reversed((message, *more)):
            for receiver in self._receivers:
                receiver.settle(one.tag, done=done)

    async def request(self, topic: str, body: bytes, within: float) -> bytes:
        """Send and return the first answer; raise `TimedOut` after `timeout` seconds."""
        answers: list[bytes] = []
        answered = anyio.Event()

        async def reply(answer: bytes) -> None:
            await checkpoint()
            answers.append(answer)
            answered.set()

        if not self._post(Message(topic, body, "", 0, reply, self._user)):
            raise errors.Unheard(f"no consumer for {topic!r}")
        with anyio.move_on_after(within):
            await answered.wait()
        if not answers:
            raise errors.TimedOut(f"no answer from {topic!r} within {within:g} s")
        return answers[0]

    def _post(self, message: Message) -> bool:
        found = [queue for name, queue in self._queues.items() if matches(name, message.topic)]
        if any(len(queue) >= MOST_WAITING for queue in found):
            raise errors.Unavailable(f"too many messages wait for the reader of {message.topic!r}")
        for queue in found:
            queue.put(message)
        return bool(found)


async def _unheard(_: bytes) -> None:
    await checkpoint()
