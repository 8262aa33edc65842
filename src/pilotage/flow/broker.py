"""The line to the broker: what users ask for is taken in and kept first, and what is told goes out.

A message is acknowledged when all that it means is in the store. Whatever goes wrong with the
broker, the rest of the hub goes on.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import anyio

from pilotage.base import backoff
from pilotage.base.supervise import Supervisor
from pilotage.bus import batches
from pilotage.bus.port import Message
from pilotage.edge import broker
from pilotage.event import records
from pilotage.project.folder import ProjectFolder
from pilotage.store import Db

if TYPE_CHECKING:
    from pilotage.bus.amqp.bus import AmqpBus

_log = logging.getLogger("pilotage.flow")
#: A connection that failed is made again after 5 s.
_RESTART = backoff.fixed(5.0)
_HUB = "flows hub"

#: Takes messages in; they are acknowledged after it.
Take = Callable[[Sequence[Message]], Awaitable[None]]


class Line:
    """One connection to the broker after the other."""

    def __init__(
        self,
        project: ProjectFolder,
        flows: Take,
        send: Callable[[AmqpBus], Coroutine[Any, Any, None]],
    ) -> None:
        """Take what is done with flows, and who sends while there is a bus."""
        self._project, self._flows, self._send = project, flows, send

    async def run(self) -> None:
        """Listen and speak until cancelled."""
        await Supervisor(self._project.clock, _log, _RESTART).keep("broker", self._talk)

    async def _talk(self) -> None:
        project = self._project
        bus, flows = project.settings.bus, project.settings.flows
        async with (
            broker.connect(bus, project.root) as line,
            anyio.create_task_group() as tasks,
        ):
            for topic in {*(flows.topics if flows.users else ()), *bus.jobs}:
                tasks.start_soon(self._listen, line, topic)
            tasks.start_soon(self._send, line)

    async def _listen(self, bus: AmqpBus, pattern: str) -> None:
        async with bus.subscribe(pattern, ahead=batches.MOST) as incoming:
            await batches.take(incoming, lambda some: batches.settle(bus, some, self._flows, _log))


def hub(db: Db) -> str:
    """Return the name of this hub for sites; nothing if it has none yet."""
    return records.cursor(db, _HUB) or ""


def own(db: Db) -> str:
    """Return the name by which sites tell this hub from others; it lives as long as its store."""
    found = records.cursor(db, _HUB)
    if found is None:
        found = secrets.token_hex(4)
        records.advance(db, _HUB, found)
    return found
