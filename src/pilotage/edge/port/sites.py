"""The hub's side: all sites whose agents are connected to its port.

Nothing is stored here. A message of the hub is a row of its store until the agent has it on disk,
and a message of an agent is in the agent's store until the hub has it on disk: each side confirms
after its commit, and a broken connection confirms nothing.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Self

import anyio
from anyio.lowlevel import checkpoint

from pilotage.base import errors
from pilotage.bus.port import Message, matches

#: Seconds that the other side has to put a message on disk.
_PATIENCE_S = 60.0
_BEAT = "heartbeat."


class _Sent:
    """A message on its way to a subscriber; `done` ends when it is on disk there."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, trouble: str = "") -> None:
        if self.done.done():
            return
        if trouble:
            self.done.set_exception(errors.Unavailable(trouble))
        else:
            self.done.set_result(None)


class _Box:
    """Waiting and unacknowledged messages of one subscriber."""

    def __init__(self, ahead: int) -> None:
        self._waiting: deque[_Sent] = deque()
        self._held: dict[int, _Sent] = {}
        self._stirred = asyncio.Event()
        self._ahead = ahead

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while not self._waiting or (self._ahead and len(self._held) >= self._ahead):
            self._stirred.clear()
            await self._stirred.wait()
        sent = self._waiting.popleft()
        self._held[sent.message.tag] = sent
        return sent.message

    def put(self, sent: _Sent) -> None:
        self._waiting.append(sent)
        self._stirred.set()

    def settle(self, tag: int, *, done: bool) -> None:
        """Confirm a message, or fail it."""
        if sent := self._held.pop(tag, None):
            self._stirred.set()
            sent.settle("" if done else "it was given back")

    def close(self, trouble: str) -> None:
        """Fail all messages that are not on disk."""
        for sent in (*self._held.values(), *self._waiting):
            sent.settle(trouble)
        self._held.clear()
        self._waiting.clear()


class SiteLine:
    """The connection of one site's agent, with the bus as that agent may use it."""

    def __init__(self, site: str, lines: AgentLines) -> None:
        self.site = site
        #: Set when the connection is over, or another one of the site has taken its place.
        self.over = asyncio.Event()
        self._lines = lines
        self._boxes: dict[str, _Box] = {}

    async def publish(self, topic: str, body: bytes, key: str = "", *, heard: bool = False) -> None:
        """Publish a message of the agent, and return once the hub has it on disk."""
        del heard
        if topic.startswith(_BEAT) and topic != f"{_BEAT}{self.site}":
            raise errors.Denied(f"this agent may send for the site {self.site} only")
        await self._lines.take(self.site, topic, body, key)

    @asynccontextmanager
    async def subscribe(
        self, pattern: str, *, ahead: int = 0
    ) -> AsyncIterator[AsyncIterator[Message]]:
        """Deliver the messages of the hub to the site."""
        if pattern not in (f"job.{self.site}", f"control.{self.site}"):
            message = f"this agent receives messages for the site {self.site} only"
            raise errors.Denied(message, hint=f"it may subscribe to job.{self.site}")
        if pattern in self._boxes:
            raise errors.Conflict(f"{pattern!r} is subscribed to already")
        box = self._boxes[pattern] = _Box(ahead)
        self._lines.listens(pattern)
        try:
            yield box
        finally:
            del self._boxes[pattern]
            box.close(f"the agent of {self.site} does not listen any more")

    async def ack(self, message: Message, *more: Message, done: bool = True) -> None:
        """Confirm that the agent has messages on disk."""
        await checkpoint()
        for one in (message, *more):
            for box in self._boxes.values():
                box.settle(one.tag, done=done)

    async def request(self, topic: str, body: bytes, within: float) -> bytes:
        """Answer nothing: an agent has no questions to the hub."""
        del body, within
        await checkpoint()
        raise errors.Unheard(f"no agent answers {topic!r}")

    def send(self, message: Message) -> asyncio.Future[None]:
        """Deliver a message; the returned future ends once the agent has it on disk."""
        box = self._boxes.get(message.topic)
        if box is None:
            raise errors.Unheard(f"the agent of {self.site} does not listen to {message.topic!r}")
        sent = _Sent(message)
        box.put(sent)
        return sent.done


class AgentLines:
    """The bus between this hub and the agents that are connected to its port."""

    #: Listening at the own port always works.
    trouble = ""

    def __init__(self) -> None:
        """Start with no site."""
        self._lines: dict[str, SiteLine] = {}
        self._boxes: list[tuple[str, _Box]] = []
        self._tags = itertools.count(1)
        self._changed = asyncio.Event()
        #: Called with each topic that an agent has begun to listen to.
        self.on_listen: list[Callable[[str], None]] = []

    @property
    def sites(self) -> dict[str, SiteLine]:
        """The sites that are connected."""
        return dict(self._lines)

    async def changed(self) -> None:
        """Return once a site has come or gone."""
        await self._changed.wait()

    def open(self, site: str) -> SiteLine:
        """Register the connection of a site; an earlier one is over."""
        if before := self._lines.get(site):
            self.close(before)
        line = self._lines[site] = SiteLine(site, self)
        self._tell()
        return line

    def close(self, line: SiteLine) -> None:
        """Forget a connection."""
        line.over.set()
        if self._lines.get(line.site) is line:
            del self._lines[line.site]
            self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def listens(self, topic: str) -> None:
        """Note that an agent has subscribed to a topic."""
        for tell in self.on_listen:
            tell(topic)

    async def take(self, site: str, topic: str, body: bytes, key: str) -> None:
        """Deliver a message of an agent to all subscribers; return once each has it on disk."""
        boxes = [box for pattern, box in self._boxes if matches(pattern, topic)]
        if not boxes:
            raise errors.Unavailable("the hub does not listen to sites yet")
        waiting = []
        for box in boxes:
            tag = next(self._tags)
            sent = _Sent(
                Message(topic=topic, body=body, key=key, tag=tag, reply=_unheard, user=site)
            )
            box.put(sent)
            waiting.append(sent.done)
        await _all(waiting)

    # -- the verbs, as the hub has them ----------------------------------------------------------

    async def publish(self, topic: str, body: bytes, key: str = "", *, heard: bool = False) -> None:
        """Send to a site, and return once its agent has it on disk."""
        del heard
        await _all([self._send(topic, body, key, _unheard)])

    @asynccontextmanager
    async def subscribe(
        self, pattern: str, *, ahead: int = 0
    ) -> AsyncIterator[AsyncIterator[Message]]:
        """Receive messages of sites; `user` of a message is the site, by the token of its agent."""
        entry = (pattern, _Box(ahead))
        self._boxes.append(entry)
        try:
            yield entry[1]
        finally:
            self._boxes.remove(entry)
            entry[1].close("the hub does not listen to sites now")

    async def ack(self, message: Message, *more: Message, done: bool = True) -> None:
        """Confirm to the agents that their messages are on disk."""
        await checkpoint()
        for one in (message, *more):
            for _, box in self._boxes:
                box.settle(one.tag, done=done)

    async def request(self, topic: str, body: bytes, within: float) -> bytes:
        """Send to a site and return its first answer."""
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def reply(said: bytes) -> None:
            await checkpoint()
            if not answered.done():
                answered.set_result(said)

        try:
            with anyio.fail_after(within):
                await _all([self._send(topic, body, "", reply)])
                return await answered
        except TimeoutError as error:
            raise errors.TimedOut(f"no answer from {topic!r} within {within:g} s") from error

    def _send(
        self, topic: str, body: bytes, key: str, reply: Callable[[bytes], Awaitable[None]]
    ) -> asyncio.Future[None]:
        site = topic.partition(".")[2]
        line = self._lines.get(site)
        if line is None:
            raise errors.Unheard(f"the agent of the site {site} is not connected")
        tag = next(self._tags)
        return line.send(Message(topic=topic, body=body, key=key, tag=tag, reply=reply))


async def _all(waiting: Sequence[asyncio.Future[None]]) -> None:
    """Wait until messages are on disk where they go."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await asyncio.gather(*waiting)
    except TimeoutError as error:
        raise errors.Unavailable("it was not put on disk in time") from error
    finally:
        for one in waiting:
            # Later failures have no caller any more.
            if not one.done():
                one.cancel()


async def _unheard(_: bytes) -> None:
    await checkpoint()
