"""A program that submits jobs over the link."""

from __future__ import annotations

import asyncio
import ssl
from typing import Self

from bench.swarm.wire import ASK, Answer, Message, Reader, pack


class User:
    """A connection that asks one thing after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._in, self._out = reader, writer
        self._answers = Reader()
        self._n = 0

    @classmethod
    async def login(cls, port: int, token: str, tls: ssl.SSLContext | None = None) -> Self:
        """Connect as whoever holds a token."""
        one = cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))
        one._out.write(ASK)
        await one.ask({"op": "login", "protocol": 1, "token": token})
        return one

    async def submit(self, count: int, tag: str = "") -> tuple[int, ...]:
        """Submit so many jobs that do nothing; they are on disk when this returns."""
        spec = {"recipe": {"kind": "command", "argv": ["true"]}, "name": "nothing"}
        job = {"spec": spec, "tag": tag}
        return (await self.ask({"op": "submit", "jobs": [job] * count})).ids

    async def ask(self, message: Message) -> Answer:
        """Send a message and return its answer."""
        self._n += 1
        self._out.write(pack({**message, "n": self._n}))
        while True:
            data = await self._in.read(1 << 16)
            if not data:
                raise ConnectionError("the hub hung up")
            for answer in self._answers.feed(data):
                if answer.error is not None:
                    raise RuntimeError(f"{answer.error.code}: {answer.error.message}")
                return answer

    def close(self) -> None:
        """Hang up."""
        self._out.close()
