"""Pilots and programs that speak the link as a test tells them to, with a real hub."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from typing import Any

import msgspec

from pilotage.link import codec
from tests.rigs.node.real_hub import RealHub

Message = dict[str, Any]


class LinkConnection:
    """A connection; several pilots may share it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Message]] = {}
        self._hearing = asyncio.create_task(self._hear(reader))

    @classmethod
    async def open(cls, hub: RealHub) -> LinkConnection:
        reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
        writer.write(codec.greeting("127.0.0.1"))
        return cls(reader, writer)

    def say(self, op: str, **fields: Any) -> asyncio.Future[Message]:
        """Send a message; the answer comes later, or never."""
        number = next(self._numbers)
        heard = self._asked[number] = asyncio.get_running_loop().create_future()
        self._writer.write(codec.frame(msgspec.json.encode({"op": op, "n": number, **fields})))
        return heard

    async def ask(self, op: str, **fields: Any) -> Message:
        """Send a message, and wait for the answer."""
        return await asyncio.wait_for(self.say(op, **fields), 60)

    def write(self, data: bytes) -> None:
        """Send bytes that may be no message."""
        self._writer.write(data)

    async def ended(self) -> None:
        """Wait until the hub has ended the connection."""
        await self._hearing

    async def cut(self) -> None:
        """Be gone without a word."""
        self._writer.transport.abort()
        self._hearing.cancel()
        await asyncio.gather(self._hearing, return_exceptions=True)

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        incoming = codec.Incoming()
        while data := await reader.read(1 << 18):
            for body in incoming.feed(data):
                message = msgspec.json.decode(body)
                heard = self._asked.pop(message.get("n") or 0, None)
                if heard is not None and not heard.done():
                    heard.set_result(message)


class Node:
    """A pilot without a node: it says that jobs ended when the test says so."""

    def __init__(
        self, talk: LinkConnection, *, p: int = 0, host: str = "node", cpus: int = 4
    ) -> None:
        self.talk = talk
        self.number = 0
        self.key = secrets.token_hex(32)
        self.running: list[str] = []
        self.p, self.host = p, host
        self.facts = {
            "host": host, "work": f"/tmp/{host}", "cpus": cpus, "memory": 8 << 30, "disk": 1 << 40,
            "python": "/usr/bin/python3", "python_version": "3.11.2", "os": "linux",
        }  # fmt: skip

    async def join(self, token: str) -> Node:
        """Enrol, and be ready for work."""
        found = await self.talk.ask(
            "hello", protocol=1, token=token, key=self.key, facts=self.facts, p=self.p
        )
        self.number = found["pilot"]
        assert "error" not in await self.talk.ask("ready", checks=[], p=self.p)
        return self

    async def sync(self, *ended: Message, wait: float = 0.0) -> Message:
        """Say what ended and get work."""
        found = await self.talk.ask("sync", ended=list(ended), wait=wait, p=self.p)
        assert "error" not in found, found
        done = {one["key"] for one in ended}
        self.running = [one for one in self.running if one not in done]
        self.running += [one["key"] for one in found["jobs"]]
        return found

    async def resume(self, talk: LinkConnection) -> Message:
        """Come back on another connection."""
        self.talk = talk
        found = await talk.ask(
            "resume", protocol=1, pilot=self.number, key=self.key, running=self.running, p=self.p
        )
        self.running += [one["key"] for one in found.get("jobs", [])]
        return found


def end(key: str, code: int = 0, wall: float = 1.0) -> Message:
    """Say how a job ended."""
    usage = {
        "wall": wall, "cpu_user": wall, "cpu_system": 0.0, "max_rss": 1, "read_bytes": 0,
        "written_bytes": 0,
    }  # fmt: skip
    return {"key": key, "time": 0.0, "exit": code, "reason": "exited", "usage": usage}
