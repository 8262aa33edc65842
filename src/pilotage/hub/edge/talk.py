"""All that an agent says to the broker and hears from it, over one connection after the other."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable

import anyio
import msgspec

from pilotage.bus.amqp.bus import AmqpBus
from pilotage.bus.amqp.model import Broker
from pilotage.bus.model import Heartbeat
from pilotage.hub.edge.follow import Followed
from pilotage.hub.edge.keep import Parts
from pilotage.site.agent.beat import Beat
from pilotage.site.agent.control import Controls
from pilotage.site.agent.ingest import Ingest
from pilotage.site.agent.outbox import Outbox
from pilotage.site.agent.registry import Registry
from pilotage.site.agent.settings import Settings
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.edge")
_UNKNOWN = "not connected yet"


class Talk:
    """Jobs and controls come in, status messages and heartbeats go out."""

    def __init__(
        self, settings: Followed, parts: Parts, writer: Writer, open_reader: Callable[[], Db],
        registry: Registry, now: Callable[[], float], poke: Callable[[], None],
        beat: Callable[[], Awaitable[Heartbeat]],
    ) -> None:  # fmt: skip
        """Take what is done with what is heard, and who knows how the site is."""
        self._settings, self._parts = settings, parts
        self._writer, self._open_reader, self._registry = writer, open_reader, registry
        self._now, self._poke, self._beat = now, poke, beat
        self._bus: AmqpBus | None = None
        self._outbox: Outbox | None = None
        self._ingests: list[Ingest] = []
        self._taking = True
        settings.on_renewal.append(self._renew)

    @property
    def trouble(self) -> str:
        """Why there is no connection; empty if there is one."""
        return self._bus.trouble if self._bus else _UNKNOWN

    @property
    def waiting(self) -> int:
        """How many status messages wait to be sent."""
        return self._outbox.depth if self._outbox else 0

    def take(self, *, jobs: bool) -> None:
        """Take jobs from the broker, or leave them there."""
        self._taking = jobs
        for one in self._ingests:
            one.taking = jobs

    async def run(self) -> None:
        """Speak with the broker that the settings name, until cancelled."""
        while True:
            settings = self._settings()
            async with AmqpBus(_broker(settings)) as bus, anyio.create_task_group() as tasks:
                self._bus = bus
                tasks.start_soon(self._converse, bus, settings)
                await self._settings.other(spoken, spoken(settings))
                _log.info("the broker is called anew, under other settings")
                tasks.cancel_scope.cancel()

    async def _converse(self, bus: AmqpBus, settings: Settings) -> None:
        now, poke = self._now, self._poke
        self._ingests = []
        self._outbox = Outbox(
            bus, self._writer, self._open_reader, self._settings, now,
            lambda: any(one.crowded for one in self._ingests),
        )  # fmt: skip
        async with anyio.create_task_group() as tasks:

            def keep(name: str, part: Callable[[], Awaitable[None]]) -> None:
                tasks.start_soon(self._parts.keep, name, part)

            for topic, unnamed in settings.job_topics.items():
                one = Ingest(bus, self._writer, self._registry, self._settings, now, poke)
                one.taking = self._taking
                self._ingests.append(one)
                keep(f"jobs by {topic}", functools.partial(one.run, topic, unnamed))
            keep("controls", Controls(bus, self._writer, self._settings, now, poke).run)
            keep("status messages", self._outbox.run)
            keep("heartbeats", Beat(bus, self._settings, self._beat).run)

    def _renew(self) -> None:
        if self._bus:
            self._bus.renew()


def spoken(settings: Settings) -> object:
    """Return what is another one if the broker is to be called anew."""
    # Whose jobs come by a topic must not be as it was once the site says otherwise.
    return _broker(settings), settings.job_topics


def _broker(settings: Settings) -> Broker:
    """Say how the broker is spoken with; one agent at a time gets jobs."""
    bus = settings.bus
    same = {name: getattr(bus, name) for name in Broker.__struct_fields__ if hasattr(bus, name)}
    single = (*settings.job_topics, settings.control_topic)
    return msgspec.structs.replace(Broker(**same), single=single)
