"""A site as a hub sees it: real messages through a real broker, written by the test."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from pilotage.bus import wire
from pilotage.bus.amqp.bus import AmqpBus
from pilotage.bus.amqp.model import Broker
from pilotage.bus.model import Answer, Control, Heartbeat, Job, Reason, Result, Status
from pilotage.bus.port import Message
from testbed.rabbit import Rabbit

#: Room enough for any job.
ROOM = 10**12
#: Since when all agents run.
BEGAN = time.time() - 3600


class OwnExchange:
    """An exchange of its own at the shared broker, so that tests do not hear each other."""

    def __init__(self, rabbit: Rabbit, port: int = 0) -> None:
        self.rabbit = rabbit
        self.exchange = f"edges-{secrets.token_hex(4)}"
        self.url = f"amqps://127.0.0.1:{port or rabbit.port}/"

    def settings(self, user: str = "hub", **more: object) -> str:
        """Write the table `[bus]` of a project."""
        papers = self.rabbit.papers[user]
        facts = {
            "url": self.url, "ca": self.rabbit.authority.certificate, "user": user,
            "certificate": papers.certificate, "key": papers.key, "exchange": self.exchange,
            "dead": f"{self.exchange}.dead", **more,
        }  # fmt: skip
        lines = [f'{name} = "{value}"' for name, value in facts.items()]
        return "\n".join(["[bus]", *lines, "patience = 10.0", ""])

    def bus(self, user: str = "site") -> AmqpBus:
        """Make the bus as a user has it, by the broker's own port."""
        papers = self.rabbit.papers[user]
        return AmqpBus(
            Broker(
                url=self.rabbit.url, ca=str(self.rabbit.authority.certificate), user=user,
                certificate=str(papers.certificate), key=str(papers.key), exchange=self.exchange,
                dead=f"{self.exchange}.dead",
            )
        )  # fmt: skip


def beat(site: str = "mira", **more: Any) -> Heartbeat:
    """Make a heartbeat of a site that is well."""
    plain = {"site": site, "time": time.time(), "version": "1.0", "epoch": 1, "since": BEGAN}
    return Heartbeat(**{**plain, "disk_free": ROOM, **more})


async def say(bus: AmqpBus, found: Heartbeat, topic: str = "") -> None:
    """Have a heartbeat sent."""
    await bus.publish(topic or f"heartbeat.{found.site}", wire.encode(found))


class Site:
    """Stands in for an agent: takes jobs and controls, and says what the test wants."""

    def __init__(self, lane: OwnExchange, name: str = "mira") -> None:
        self.name = name
        self._lane = lane
        self._bus: AmqpBus
        #: Jobs and controls that came, with who sent them.
        self.jobs: list[tuple[str, Job]] = []
        self.controls: list[tuple[str, Control]] = []
        #: What is said of each job, in order.
        self.course: list[dict[str, Any]] = [
            {"state": "queued", "step": "accept"},
            {"state": "running", "step": "run", "scheduler_id": "4711"},
            {"state": "done", "step": "stage_out"},
        ]
        #: How it answers a control; nothing means not at all.
        self.answer: Answer | None = Answer(site=name, time=1.0, verb="drain", draining=True)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Serve until cancelled."""
        self._bus = self._lane.bus("site")
        async with (
            self._bus,
            self._bus.subscribe(f"job.{self.name}") as jobs,
            self._bus.subscribe(f"control.{self.name}") as controls,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(self._serve, jobs)
            tasks.start_soon(self._obey, controls)
            task_status.started()
            await anyio.sleep_forever()

    async def beat(self, **more: Any) -> None:
        """Send a heartbeat."""
        await say(self._bus, beat(self.name, **more))

    async def _serve(self, jobs: AsyncIterator[Message]) -> None:
        async for message in jobs:
            job = wire.decode(message.body)
            assert isinstance(job, Job)
            self.jobs.append((message.user, job))
            for seq, step in enumerate(self.course, start=1):
                reason = Reason(text=step.get("text", ""), code=step.get("code", ""))
                facts = {name: step[name] for name in step if name not in {"text", "code"}}
                facts = {"site": self.name, "job": 7, "key": job.key, "time": time.time(), **facts}
                status = Status(**{"seq": seq, "reason": reason, **facts})
                await self._bus.publish(job.reply, wire.encode(status))
            await self._bus.ack(message)

    async def _obey(self, controls: AsyncIterator[Message]) -> None:
        async for message in controls:
            asked = wire.decode(message.body)
            assert isinstance(asked, Control)
            self.controls.append((message.user, asked))
            if self.answer:
                await message.reply(wire.encode(self.answer))
            await self._bus.ack(message)


@asynccontextmanager
async def serving(site: Site) -> AsyncIterator[Site]:
    """Have a site served within the block."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(site.run)
        yield site
        tasks.cancel_scope.cancel()


@contextmanager
def served(site: Site) -> Iterator[BlockingPortal]:
    """Have a site served by a thread, for tests that run programs."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving(site)):
        yield portal


def result(job: int, **more: Any) -> Result:
    """Make what a control did to one job."""
    return Result(job=job, **more)
