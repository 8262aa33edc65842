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

from pilotage.base import errors
from pilotage.bus import batches
from pilotage.bus.port import Message
from pilotage.edge import broker
from pilotage.event import records
from pilotage.hub.project import Project
from pilotage.store import Db

if TYPE_CHECKING:
    from pilotage.bus.amqp.bus import AmqpBus

_log = logging.getLogger("pilotage.flow")
#: How long it rests after something that went wrong, in seconds.
_ANEW_S = 5.0
_HUB = "flows hub"

#: Takes messages in; they are acknowledged after it.
Take = Callable[[Sequence[Message]], Awaitable[None]]


class Line:
    """One connection to the broker after the other."""

    def __init__(
        self, project: Project, flows: Take, send: Callable[[AmqpBus], Coroutine[Any, Any, None]]
    ) -> None:
        """Take what is done with flows, and who sends while there is a bus."""
        self._project, self._flows, self._send = project, flows, send

    async def run(self) -> None:
        """Listen and speak until cancelled."""
        trouble = ""
        while True:
            try:
                await self._talk()
            except* errors.PilotageError as group:
                said = str(_first(group))
                if said != trouble:
                    trouble = said
                    _log.error("broker: %s", said)
            except* Exception:  # noqa: BLE001 - whatever it is, the hub goes on
                _log.exception("broker: this is a mistake in Pilotage")
            await anyio.sleep(_ANEW_S)

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


def _first(group: BaseExceptionGroup[errors.PilotageError]) -> errors.PilotageError:
    """Return one error of those that came together."""
    one = group.exceptions[0]
    return _first(one) if isinstance(one, BaseExceptionGroup) else one
