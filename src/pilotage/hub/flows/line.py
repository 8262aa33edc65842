"""The line to the broker: what sites say of jobs and what users ask for, taken in and kept first.

A message is acknowledged when all that it means is in the store. Whatever goes wrong with the
broker, the rest of the hub goes on.
"""

from __future__ import annotations

import logging
import secrets
from asyncio import wrap_future
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskStatus

from pilotage import errors
from pilotage.bus import batches
from pilotage.bus.port import Message
from pilotage.event import records
from pilotage.hub import edge_bus
from pilotage.hub.project import Project
from pilotage.store import Db, Writer

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
        self, project: Project, writer: Writer, statuses: Take, flows: Take,
        send: Callable[[AmqpBus], Coroutine[Any, Any, None]],
    ) -> None:  # fmt: skip
        """Take what is done with statuses and with flows, and who sends while there is a bus."""
        self._project, self._writer = project, writer
        self._statuses, self._flows, self._send = statuses, flows, send
        #: What tells jobs of this hub from those of others; known once it runs.
        self.hub = ""

    @property
    def back(self) -> str:
        """The pattern of what sites say."""
        return self._project.settings.flows.reply or "status.**"

    async def begin(self) -> None:
        """Learn who we are for sites."""
        self.hub = await wrap_future(self._writer.submit(_hub))

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
        bus = project.settings.bus
        own = {self.back: f"{bus.exchange}:flows:{self.hub}"}
        async with (
            edge_bus.connect(bus, project.root, queues=own, fading=(self.back,)) as line,
            anyio.create_task_group() as tasks,
        ):
            # What is said before somebody listens is lost: so nothing is sent before that.
            await tasks.start(self._listen, line, self.back, self._statuses)
            for topic in project.settings.flows.topics if project.settings.flows.users else ():
                tasks.start_soon(self._listen, line, topic, self._flows)
            tasks.start_soon(self._send, line)

    async def _listen(
        self, bus: AmqpBus, pattern: str, take: Take,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:  # fmt: skip
        async with bus.subscribe(pattern, ahead=batches.MOST) as incoming:
            task_status.started()
            await batches.take(incoming, lambda messages: self._taken(bus, messages, take))

    async def _taken(self, bus: AmqpBus, messages: Sequence[Message], take: Take) -> None:
        """Have messages taken in, and tell the broker; one that nobody foresaw stops no other."""
        try:
            await take(messages)
        except errors.StoreUnavailable as error:
            _log.error("%s; %d messages go back to the broker", error, len(messages))
            await anyio.sleep(_ANEW_S)
            await bus.ack(*messages, done=False)
        except Exception:  # noqa: BLE001 - what it says is asked for again, if it matters
            if len(messages) == 1:
                _log.exception("a message by %s: a mistake in Pilotage", messages[0].topic)
                await bus.ack(*messages)
                return
            for one in messages:
                await self._taken(bus, [one], take)
        else:
            await bus.ack(*messages)


def hub(db: Db) -> str:
    """Return the name of this hub for sites; nothing if it has none yet."""
    return records.cursor(db, _HUB) or ""


def _hub(db: Db) -> str:
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
