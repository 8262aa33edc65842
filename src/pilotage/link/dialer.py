"""A client's connection to a hub: requests out, answers and deliveries in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import msgspec

from pilotage.base import errors
from pilotage.link import codec
from pilotage.link.connect import close, encrypt, reach
from pilotage.node.dial import Route

#: How long an answer may take beyond what was asked to be waited for.
_PATIENCE_S = 30.0
_BULK = 1 << 18


class HubConnection:
    """An authenticated connection to a hub."""

    def __init__(
        self, writer: asyncio.StreamWriter, hear: Callable[[dict[str, Any]], None]
    ) -> None:
        self._writer = writer
        self._hear_push = hear
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self._lost = asyncio.Event()
        #: The hub's answer to the first message.
        self.terms: dict[str, Any] = {}
        #: Why the connection is over; empty while it is not.
        self.over = ""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, way: Route, op: str, hear: Callable[[dict[str, Any]], None] = lambda _: None,
        **fields: Any,  # noqa: ANN401 - JSON
    ) -> AsyncIterator[Self]:  # fmt: skip
        """Connect and authenticate; `hear` gets messages that answer no request."""
        reader, writer = await reach(way)
        try:
            await encrypt(writer, way)
            line = cls(writer, hear)
            writer.write(codec.greeting(f"{way.host}:{way.port}"))
            hearing = asyncio.create_task(line._hear(reader))
            try:
                line.terms = await line.ask(op, **fields)
                yield line
            finally:
                hearing.cancel()
                await asyncio.gather(hearing, return_exceptions=True)
        finally:
            await close(writer)

    async def ask(self, op: str, *, wait: float = 0.0, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Send a request; return the answer, or raise the hub's error or `Unavailable`."""
        if self.over or self._writer.is_closing():
            raise errors.Unavailable(self.over or "the connection to the hub is closed")
        self._number += 1
        number = self._number
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            async with asyncio.timeout(wait + _PATIENCE_S):
                await self.tell(op, n=number, **fields, **({"wait": wait} if wait else {}))
                return await answer
        except (OSError, TimeoutError) as error:
            raise errors.Unavailable(f"the hub does not answer: {error}") from error
        finally:
            self._asked.pop(number, None)

    async def tell(self, op: str, **fields: Any) -> None:  # noqa: ANN401 - JSON
        """Send a message that has no answer."""
        self._writer.write(codec.frame(msgspec.json.encode({"op": op, **fields})))
        await self._writer.drain()

    async def lost(self) -> None:
        """Return once the connection is over."""
        await self._lost.wait()

    def cut(self, why: str) -> None:
        """Close the connection, with a reason."""
        self.over = self.over or why
        self._writer.close()

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        incoming = codec.Incoming()
        why = "the hub has closed the connection"
        try:
            while data := await reader.read(_BULK):
                for message in incoming.feed(data):
                    self._take(msgspec.json.decode(message))
        except (OSError, msgspec.DecodeError, errors.PilotageError) as error:
            why = str(error)
        finally:
            self.over = self.over or why
            self._lost.set()
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(errors.Unavailable(self.over))

    def _take(self, reply: dict[str, Any]) -> None:
        if "n" not in reply:
            self._hear_push(reply)
            return
        error = reply.get("error")
        # What is not even understood is answered without a number.
        waiting = [self._asked[reply["n"]]] if reply["n"] in self._asked else []
        if error is not None and reply["n"] is None:
            waiting = list(self._asked.values())
        for answer in waiting:
            if answer.done():
                continue
            if error is None:
                answer.set_result(reply)
            else:
                kind = errors.by_code(str(error.get("code")))
                answer.set_exception(
                    kind(str(error.get("message")), hint=str(error.get("hint", "")))
                )
