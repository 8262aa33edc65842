"""All that an agent says to the broker or its hub, and hears from it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, Self
from urllib.parse import quote

import anyio
import msgspec

from pilotage.agent.beat import Beat
from pilotage.agent.control import Controls
from pilotage.agent.ingest import Ingest
from pilotage.agent.keep import Parts
from pilotage.agent.live_settings import Followed
from pilotage.agent.logs import Logs
from pilotage.agent.outbox import Outbox
from pilotage.agent.registry import Registry
from pilotage.agent.settings import Hub, Settings
from pilotage.base import errors
from pilotage.bus.amqp.model import Broker
from pilotage.bus.model import Heartbeat
from pilotage.bus.port import Bus
from pilotage.data.transfer.kind.hub import Home
from pilotage.edge.port import keys
from pilotage.edge.port.bus import HubBus, Pace
from pilotage.hub.project import Project
from pilotage.link import connect
from pilotage.node.dial import Route
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.edge")
_UNKNOWN = "not connected yet"


class Carrier(Bus, Protocol):
    """A bus over a connection, which is made inside `async with`."""

    @property
    def trouble(self) -> str:
        """Why there is no connection; empty if there is one."""
        ...

    def renew(self) -> None:
        """Connect anew, with the certificates that there are now."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *what: object) -> None: ...


class Talk:
    """Jobs and controls come in, status messages and heartbeats go out."""

    def __init__(
        self, project: Project, settings: Followed, parts: Parts, writer: Writer,
        open_reader: Callable[[], Db], registry: Registry, poke: Callable[[], None],
        beat: Callable[[], Awaitable[Heartbeat]],
    ) -> None:  # fmt: skip
        """Take what is done with what is heard, and who knows how the site is."""
        self._settings, self._parts = settings, parts
        self._writer, self._open_reader, self._registry = writer, open_reader, registry
        self._now, self._poke, self._beat = project.clock.now, poke, beat
        self._state = project.state
        self._bus: Carrier | None = None
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
        """Speak with the broker or the hub that the settings name, until cancelled."""
        while True:
            settings = self._settings()
            async with self._carrier(settings) as bus, anyio.create_task_group() as tasks:
                self._bus = bus
                tasks.start_soon(self._converse, bus, settings)
                await self._settings.other(spoken, spoken(settings))
                _log.info("%s is called anew, under other settings", settings.source)
                tasks.cancel_scope.cancel()

    def _carrier(self, settings: Settings) -> Carrier:
        hub = settings.hub
        if not hub.url:
            return _amqp(settings)
        kept = keys.Keys(self._state, hub.token_file, self._now)
        pace = Pace(beat=hub.heartbeat, patience=hub.patience, retry=hub.retry, renew=keys.RENEW_S)
        way = functools.partial(_way, hub)
        return HubBus(
            functools.partial(keys.dial, way, settings.site, kept, hub.heartbeat), pace, hub.user
        )

    async def _converse(self, bus: Carrier, settings: Settings) -> None:
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
            logs = Logs(self._outbox.publish, self._open_reader, self._settings)
            keep(
                "controls", Controls(bus, self._writer, self._settings, now, poke, logs.follow).run
            )
            keep("status messages", self._outbox.run)
            keep("logs", logs.run)
            keep("heartbeats", Beat(bus, self._settings, self._beat).run)

    def _renew(self) -> None:
        if self._bus:
            self._bus.renew()


def spoken(settings: Settings) -> object:
    """Return what is another one if the broker is to be called anew."""
    # Whose jobs come by a topic must not be as it was once the site says otherwise.
    return settings.hub, _broker(settings), settings.job_topics


def _amqp(settings: Settings) -> Carrier:
    try:
        from pilotage.bus.amqp.bus import AmqpBus  # agents that dial a hub do not need it
    except ImportError as error:
        message = f"the broker cannot be spoken with: {error}"
        raise errors.ConfigError(message, hint="pip install 'pilotage[amqp]'") from error
    return AmqpBus(_broker(settings))


def _way(hub: Hub) -> Route:
    """Say how the hub is reached; what is not encrypted must not leave this machine."""
    way = connect.route(hub.url, hub.proxy or None, hub.ca)
    if way.tls is None and not connect.is_near(way):
        message = f"{hub.url} is not encrypted and leaves this machine"
        raise errors.ConfigError(message, hint="`hub.url` begins with `https://`")
    return way


def home(settings: Settings, state: Path, now: Callable[[], float]) -> Home | None:
    """Say how the hub that the agent dials is asked for data; nothing if it dials none."""
    hub = settings.hub
    if not hub.url:
        return None
    way, kept = _way(hub), keys.Keys(state, hub.token_file, now)
    login = f"{quote(way.login, safe=':')}@" if way.login else ""
    return Home(
        url=f"{'https' if way.tls else 'http'}://{_bracketed(way.host)}:{way.port}", tls=way.tls,
        proxy=f"http://{login}{_bracketed(way.via[0])}:{way.via[1]}" if way.via[0] else "",
        key=kept.now, version=kept.version,
    )  # fmt: skip


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _broker(settings: Settings) -> Broker:
    """Say how the broker is spoken with; one agent at a time gets jobs."""
    bus = settings.bus
    same = {name: getattr(bus, name) for name in Broker.__struct_fields__ if hasattr(bus, name)}
    single = (*settings.job_topics, settings.control_topic)
    return msgspec.structs.replace(Broker(**same), single=single)
