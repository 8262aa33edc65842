"""The half of an agent that speaks with the broker, as a program.

`python -m tests.rigs.broker.agent_program` takes a folder with applications and a store, and the
broker as JSON; it runs until killed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import anyio
import msgspec

from pilotage.agent.admission import Ingest
from pilotage.agent.controls import Controls
from pilotage.agent.outbox import Logs, Outbox
from pilotage.agent.registry import Registry
from pilotage.bus.amqp.bus import AmqpBus
from pilotage.bus.amqp.model import Broker
from pilotage.store import Writer, connect
from tests.rigs.broker import agent_parts


async def run(root: Path, broker: Broker) -> None:
    """Take jobs and controls, and say what becomes of them."""
    settings = agent_parts.settings()
    file = root / "store.db"
    writer = Writer(connect(file))
    async with AmqpBus(broker) as bus, anyio.create_task_group() as tasks:
        ingest = Ingest(bus, writer, Registry(root), lambda: settings, time.time, _nothing)
        tasks.start_soon(ingest.run, f"job.{agent_parts.SITE}", "")
        outbox = Outbox(
            bus, writer, lambda: connect(file, readonly=True), lambda: settings, time.time
        )
        logs = Logs(outbox.publish, lambda: connect(file, readonly=True), lambda: settings)
        controls = Controls(bus, writer, lambda: settings, time.time, _nothing, logs.follow)
        for part in (controls.run, outbox.run, logs.run):
            tasks.start_soon(part)


def _nothing() -> None:
    """Nobody runs the jobs."""


if __name__ == "__main__":
    anyio.run(run, Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=Broker))
