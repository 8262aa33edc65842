"""A connection to another hub, as a program has it: questions out, answers in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Self

import msgspec

from pilotage import errors
from pilotage.client import wire
from pilotage.pilot.model import PROTOCOL
from pilotage.pilot.node.dial import Route
from pilotage.pilot.reach import close, encrypt, reach

#: How long an answer may take beyond what was asked to be waited for.
_PATIENCE_S = 30.0
_BULK = 1 << 18


class Line:
    """A connection on which the hub has let us in."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        #: Who the hub takes us for.
        self.owner = ""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, way: Route, token: str) -> AsyncIterator[Self]:
        """Connect and log in."""
        reader, writer = await reach(way)
        try:
            await encrypt(writer, way)
            line = cls(writer)
            writer.write(wire.greeting(f"{way.host}:{way.port}"))
            hearing = asyncio.create_task(line._hear(reader))
            try:
                found = await line.ask("login", protocol=PROTOCOL, token=token)
                line.owner = str(found.get("owner", ""))
                yield line
            finally:
                hearing.cancel()
                await asyncio.gather(hearing, return_exceptions=True)
        finally:
            await close(writer)

    async def ask(self, op: str, *, wait: float = 0.0, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Ask, and return the answer, or raise what the hub says or that it is gone."""
        if self._writer.is_closing():
            raise errors.Unavailable("the connection to the hub is closed")
        self._number += 1
        body = {"op": op, "n": self._number, **fields} | ({"wait": wait} if wait else {})
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[self._number] = answer
        try:
            self._writer.write(wire.frame(msgspec.json.encode(body)))
            async with asyncio.timeout(wait + _PATIENCE_S):
                await self._writer.drain()
                return await answer
        except (OSError, TimeoutError) as error:
            raise errors.Unavailable(f"the hub does not answer: {error}") from error
        finally:
            self._asked.pop(body["n"], None)

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        incoming = wire.Incoming()
        why = "the hub has closed the connection"
        try:
            while data := await reader.read(_BULK):
                for message in incoming.feed(data):
                    self._take(msgspec.json.decode(message))
        except (OSError, msgspec.DecodeError, errors.PilotageError) as error:
            why = str(error)
        finally:
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(errors.Unavailable(why))

    def _take(self, reply: dict[str, Any]) -> None:
        error = reply.get("error")
        # What is not even understood is answered without a number.
        waiting = [self._asked[reply["n"]]] if reply.get("n") in self._asked else []
        if error is not None and reply.get("n") is None:
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
