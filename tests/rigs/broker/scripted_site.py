"""A site that says what a test wants, by a real broker: for what a real agent never does."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import msgspec
from anyio.from_thread import BlockingPortal, start_blocking_portal

from pilotage.bus import wire
from pilotage.bus.amqp.bus import AmqpBus
from pilotage.bus.model import Answer, Control, Job, Result, Status
from pilotage.bus.port import Message
from tests.rigs.broker.site_messages import OwnExchange, beat, say

PATIENCE = 60.0
#: Seconds between heartbeats.
_BEAT_S = 1.0


class Site:
    """Takes jobs and controls; answers only as it is told to."""

    def __init__(self, lane: OwnExchange, name: str) -> None:
        self.name = name
        self._lane = lane
        self._bus: AmqpBus
        self._portal: BlockingPortal | None = None
        self.jobs: list[Job] = []
        self.controls: list[Control] = []
        #: What it says of a job that is asked for: a state, `unknown`, or nothing at all.
        self.answers: dict[str, str] = {"query": "", "cancel": "cancelled"}
        #: What it offers.
        self.applications = ("x",)
        #: What is said at once of each job that comes.
        self.course: list[str] = []

    @contextmanager
    def up(self) -> Iterator[Site]:
        """Have it there while the block runs."""
        with start_blocking_portal() as portal:
            self._bus = portal.call(self._lane.bus, "site")
            with portal.wrap_async_context_manager(self._bus):
                self._portal = portal
                yield from self._served(portal)

    def _served(self, portal: BlockingPortal) -> Iterator[Site]:
        jobs = self._bus.subscribe(f"job.{self.name}")
        controls = self._bus.subscribe(f"control.{self.name}")
        with (
            portal.wrap_async_context_manager(jobs) as work,
            portal.wrap_async_context_manager(controls) as asked,
        ):
            ends = [
                portal.start_task_soon(self._serve, work),
                portal.start_task_soon(self._obey, asked),
                portal.start_task_soon(self._beat),
            ]
            try:
                yield self
            finally:
                for one in ends:
                    one.cancel()

    def say(self, job: Job | str, seq: int, state: str, **more: Any) -> None:
        """Say something of a job."""
        assert self._portal is not None
        self._portal.call(self._say, job if isinstance(job, str) else job.key, seq, state, more)

    def job(self, nth: int = 0, patience: float = PATIENCE) -> Job:
        """Wait for a job."""
        until(lambda: len(self.jobs) > nth, patience)
        return self.jobs[nth]

    def asked(self, verb: str, nth: int = 0) -> Control:
        """Wait for a control."""
        until(lambda: len([one for one in self.controls if one.verb == verb]) > nth)
        return [one for one in self.controls if one.verb == verb][nth]

    async def _say(self, key: str, seq: int, state: str, more: dict[str, Any]) -> None:
        facts = {"site": self.name, "job": 7, "key": key, "seq": seq, "state": state}
        status = msgspec.convert({**facts, "time": time.time(), **more}, Status)
        await self._bus.publish(f"status.{status.site}", wire.encode(status))

    async def _beat(self) -> None:
        """Say that it is there, whatever it says of jobs."""
        while True:
            await say(self._bus, beat(self.name, applications=self.applications))
            await anyio.sleep(_BEAT_S)

    async def _serve(self, jobs: AsyncIterator[Message]) -> None:
        async for message in jobs:
            job = wire.decode(message.body)
            assert isinstance(job, Job)
            self.jobs.append(job)
            for seq, state in enumerate(self.course, 1):
                await self._say(job.key, seq, state, {})
            await self._bus.ack(message)

    async def _obey(self, controls: AsyncIterator[Message]) -> None:
        async for message in controls:
            asked = wire.decode(message.body)
            assert isinstance(asked, Control)
            self.controls.append(asked)
            if said := self.answers.get(asked.verb):
                await self._bus.publish(asked.reply, wire.encode(self._answer(asked, said)))
            await self._bus.ack(message)

    def _answer(self, asked: Control, said: str) -> Answer:
        if said == "unknown":
            results = [Result(key=key, ok=False) for key in asked.keys]
        else:
            told: Any = said
            results = [Result(job=7, key=key, state=told) for key in asked.keys]
        return Answer(site=self.name, time=time.time(), verb=asked.verb, results=tuple(results))


def until(condition: Any, patience: float = PATIENCE) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
