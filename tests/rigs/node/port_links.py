"""All that stands behind the hub's port in one process, with links whose bytes a test holds."""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from pilotage.base.clock import WallClock
from pilotage.edge.enrolment import AgentEnrolment
from pilotage.edge.port.sites import AgentLines
from pilotage.hub.connection import Clients, PortConnection
from pilotage.job import records
from pilotage.job.model import Command, Job, JobSpec, NewJob
from pilotage.match.negotiate import Matcher
from pilotage.match.queue import JobQueue
from pilotage.match.share import Shares
from pilotage.pilot import messages
from pilotage.pilot.data import Staging
from pilotage.pilot.data_link import DataLinks
from pilotage.pilot.enrolment import Enrolment, Marker
from pilotage.pilot.leases import LeaseMonitor
from pilotage.pilot.sync import LaunchTemplates, SyncHandler
from pilotage.pilot.table import PilotTable
from pilotage.project import settings as config
from pilotage.project import tokens
from pilotage.project.settings import Match, Pilots
from pilotage.run.local import JobListener
from pilotage.status.offers import HOLE
from pilotage.store import Writer, connect

Message = dict[str, Any]
LEASE = 300.0
#: What the marker in the project's folder says.
MARKED = "seen"


class Wire(asyncio.Transport):
    """The hub's end of a connection that is a list of messages."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Message] = []
        self.closed = self.paused = False
        self._frames = messages.Frames()
        self._begun = False

    def write(self, data: Any) -> None:
        if not self._begun:
            self._begun = True
            return
        self.sent += [msgspec.json.decode(body) for body in self._frames.feed(bytes(data))]

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Caller:
    """The other end of a connection."""

    def __init__(self, hub: HubWithoutPort) -> None:
        self._numbers = itertools.count(1)
        self.wire = Wire()
        self.link = PortConnection(hub.desk, hub.clients, hub.agents)
        self.link.connection_made(self.wire)
        self.link.data_received(b"GET /link HTTP/1.1\r\n\r\n")

    def say(self, op: str, **fields: Any) -> int:
        """Send a message; return its number."""
        number = next(self._numbers)
        body = msgspec.json.encode({"op": op, "n": number, **fields})
        self.link.data_received(messages.frame(body))
        return number

    async def hear(self, number: int) -> Message:
        """Wait for an answer."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = [one for one in self.wire.sent if one.get("n") == number]
            if found:
                assert len(found) == 1, found
                return found[0]
            await asyncio.sleep(0.005)
        raise AssertionError(f"no answer to {number}: {self.wire.sent}")

    async def ask(self, op: str, **fields: Any) -> Message:
        """Send a message, and wait for the answer."""
        return await self.hear(self.say(op, **fields))

    async def refusal(self, op: str, **fields: Any) -> str:
        """Send a message that is refused; return the code of the error."""
        found = await self.ask(op, **fields)
        assert "error" in found, found
        return str(found["error"]["code"])

    def cut(self) -> None:
        """Be gone."""
        self.wire.closed = True
        self.link.connection_lost(None)


class Node:
    """A pilot without a node."""

    def __init__(self, caller: Caller, **facts: Any) -> None:
        self.caller = caller
        self.key = secrets.token_hex(32)
        self.number = 0
        self.facts: Message = {"host": "node", "work": "/w", "cpus": 1, "memory": 1 << 33, **facts}

    def hello(self, token: str) -> Message:
        """Write what it says first."""
        return {"protocol": 1, "token": token, "key": self.key, "facts": self.facts}

    async def join(self, token: str) -> Node:
        """Enrol and be ready."""
        found = await self.caller.ask("hello", **self.hello(token))
        self.number = found["pilot"]
        assert "error" not in await self.caller.ask("ready")
        return self

    async def sync(self, **fields: Any) -> list[str]:
        """Ask for work; return the names of attempts."""
        return [one["key"] for one in (await self.caller.ask("sync", **fields))["jobs"]]

    async def resume(self, caller: Caller, running: list[str]) -> Message:
        """Come back by another connection."""
        self.caller = caller
        return await caller.ask(
            "resume", protocol=1, pilot=self.number, key=self.key, running=running
        )


class HubWithoutPort:
    """A hub without its port."""

    def __init__(self, folder: Path, settings: Pilots) -> None:
        #: Seconds that pass at once for leases, beside those of the machine's clock.
        self.later = 0.0
        self.db = connect(folder / "store.db")
        self.writer = Writer(connect(folder / "store.db"))
        clock = WallClock()
        jobs = str(folder / "jobs")
        self.queue = JobQueue(self.writer, Matcher(Shares(3600.0)), jobs, clock, random.Random(0))
        self.roster = PilotTable(self.queue, LEASE, lambda: time.monotonic() + self.later)
        place = config.place(config.Settings(), folder)
        staging = Staging(self.queue, place, self.db)
        counter = SyncHandler(
            self.queue,
            self.roster,
            LaunchTemplates(place, "none"),
            staging,
            settings,
            jobs,
            JobListener(),
        )
        self.desk = Enrolment(
            self.queue, self.roster, counter, settings, lambda _pool: [], Marker("/m", MARKED),
            DataLinks(staging),
        )  # fmt: skip
        self.gate = tokens.TokenGate(connect(folder / "store.db"), clock.now)
        self.clients = Clients(
            self.writer, connect(folder / "store.db"), self.gate, self.queue, clock
        )
        self.lines = AgentLines()
        self.agents = AgentEnrolment(self.writer, self.gate, self.lines, clock.now)
        self.watchman = LeaseMonitor(self.queue, self.roster, Match(), LEASE, HOLE)
        self._clock = clock

    def token(
        self, scope: tokens.TokenScope = tokens.TokenScope.ENROL, owner: str = "me", **facts: Any
    ) -> str:
        """Make a token."""
        now = self._clock.now()
        with self.db.transaction():
            return tokens.mint(self.db, scope, owner, now=now, lifetime=600.0, **facts)[0]

    def submit(self, count: int = 1, name: str = "job", **facts: Any) -> list[int]:
        """Queue jobs."""
        spec = JobSpec(Command(("true",)), name, **facts)
        with self.db.transaction():
            made = [records.add(self.db, NewJob(spec), self._clock.now()) for _ in range(count)]
        self.queue.poke()
        return [job for job in made if job is not None]

    def job(self, number: int) -> Job:
        """Read a job."""
        return records.get(self.db, number)

    async def node(self, **facts: Any) -> Node:
        """Have a pilot join by a connection of its own."""
        return await Node(Caller(self), **facts).join(self.token())

    async def round(self) -> None:
        """Have the watchman go round once."""
        await self.watchman.go_round()


@asynccontextmanager
async def backroom(folder: Path, **settings: Any) -> AsyncIterator[HubWithoutPort]:
    """Have a hub while the block runs."""
    hub = HubWithoutPort(folder, Pilots(sandbox="none", **settings))
    await hub.roster.load()
    try:
        yield hub
    finally:
        await asyncio.to_thread(hub.writer.close)
        hub.db.close()


def end(key: str, code: int = 0, **facts: Any) -> Message:
    """Say how an attempt ended."""
    return {"key": key, "time": 0.0, "exit": code, "reason": "exited", **facts}
