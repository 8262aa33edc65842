"""Connections to a broker and hubs: jobs and controls in, statuses and heartbeats out."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, Self
from urllib.parse import quote

import anyio
import msgspec
from anyio.abc import TaskGroup

from pilotage.agent import pilots
from pilotage.agent.admission import Ingest
from pilotage.agent.controls import Controls
from pilotage.agent.live_settings import LiveSettings
from pilotage.agent.outbox import Logs, Outbox
from pilotage.agent.registry import Registry
from pilotage.agent.settings import DialledHub, Settings
from pilotage.agent.status import ConnectionStatus
from pilotage.base import errors, units
from pilotage.base.supervise import Supervisor
from pilotage.bus import wire
from pilotage.bus.amqp.model import Broker
from pilotage.bus.model import Heartbeat
from pilotage.bus.port import Bus
from pilotage.data.transfer.kind.hub import HubAddress
from pilotage.edge.port import keys
from pilotage.edge.port.bus import HubBus, LinkTiming
from pilotage.link import connect
from pilotage.node.dial import Route
from pilotage.project.folder import ProjectFolder
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.edge")
#: Seconds after which a heartbeat that was not delivered is tried again, at most.
_AGAIN_S = 2.0


class Heartbeats:
    """Publishes heartbeats: the first at once, and each with the facts of its moment."""

    def __init__(
        self, bus: Bus, settings: Callable[[], Settings],
        facts: Callable[[], Awaitable[Heartbeat]],
    ) -> None:  # fmt: skip
        """Take a function that returns the facts of a heartbeat."""
        self._bus = bus
        self._settings = settings
        self._facts = facts

    async def run(self) -> None:
        """Send heartbeats until cancelled; one that fails is not sent again later."""
        trouble = ""
        while True:
            settings = self._settings()
            pause = units.seconds(settings.heartbeat)
            try:
                body = wire.encode(await self._facts())
                await self._bus.publish(settings.beat_topic, body)
                trouble = ""
            except errors.Unavailable as error:
                pause = min(pause, _AGAIN_S)
                if str(error) != trouble:
                    trouble = str(error)
                    _log.warning("cannot send to the hub, trying again: %s", error)
            await anyio.sleep(pause)


_UNKNOWN = "not connected yet"


class ConnectedBus(Bus, Protocol):
    """A bus over a connection, which is made inside `async with`."""

    @property
    def trouble(self) -> str:
        """Why there is no connection; empty if there is one."""
        ...

    def renew(self) -> None:
        """Reconnect with the current certificates."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *what: object) -> None: ...


class AgentServices(msgspec.Struct, frozen=True):
    """Services of the agent that its connections share."""

    project: ProjectFolder
    settings: LiveSettings
    parts: Supervisor
    writer: Writer
    open_reader: Callable[[], Db]
    registry: Registry
    poke: Callable[[], None]
    #: Takes the settings of the carrier that the heartbeat goes by.
    beat: Callable[[Settings], Awaitable[Heartbeat]]


class Connection:
    """Jobs and controls come in by one carrier, status messages and heartbeats go out."""

    def __init__(self, carrier: str, services: AgentServices) -> None:
        """Take the name of the carrier; nothing happens before `run`."""
        self._name, self._services = carrier, services
        self._known = services.settings().by(carrier)
        self._bus: ConnectedBus | None = None
        self._outbox: Outbox | None = None
        self._ingests: list[Ingest] = []
        self._taking = True

    def settings(self) -> Settings:
        """Return the settings of this carrier, or its last ones after it was removed."""
        now = self._services.settings()
        if self._name in now.carriers:
            self._known = now.by(self._name)
        return self._known

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

    def renew(self) -> None:
        """Reconnect with the current certificates and token."""
        if self._bus:
            self._bus.renew()

    async def run(self) -> None:
        """Stay connected to the broker or hub of the settings until cancelled."""
        while True:
            settings = self.settings()
            async with self._carrier(settings) as bus, anyio.create_task_group() as tasks:
                self._bus = bus
                tasks.start_soon(self._converse, bus, settings)
                await self._services.settings.other(
                    lambda _: spoken(self.settings()), spoken(settings)
                )
                _log.info("reconnecting to %s: its settings have changed", settings.source)
                tasks.cancel_scope.cancel()

    def _carrier(self, settings: Settings) -> ConnectedBus:
        hub = settings.hub
        if not hub.url:
            return _amqp(settings)
        project = self._services.project
        kept = _keys(settings, project.state, project.clock.now)
        pace = LinkTiming(
            beat=hub.heartbeat, patience=hub.patience, retry=hub.retry, renew=keys.RENEW_S
        )
        way = functools.partial(_way, hub)
        return HubBus(
            functools.partial(keys.dial, way, settings.site, kept, hub.heartbeat), pace, hub.user
        )

    async def _converse(self, bus: ConnectedBus, settings: Settings) -> None:
        services, mine = self._services, self.settings
        now, poke = services.project.clock.now, services.poke
        label = f"{self._name}: " if self._name else ""
        self._ingests = []
        self._outbox = Outbox(
            bus, services.writer, services.open_reader, mine, now,
            lambda: any(one.crowded for one in self._ingests),
        )  # fmt: skip
        async with anyio.create_task_group() as tasks:

            def keep(name: str, part: Callable[[], Awaitable[None]]) -> None:
                tasks.start_soon(services.parts.keep, f"{label}{name}", part)

            for topic, unnamed in settings.job_topics.items():
                one = Ingest(bus, services.writer, services.registry, mine, now, poke)
                one.taking = self._taking
                self._ingests.append(one)
                keep(f"jobs by {topic}", functools.partial(one.run, topic, unnamed))
            logs = Logs(self._outbox.publish, services.open_reader, mine)
            keep("controls", Controls(bus, services.writer, mine, now, poke, logs.follow).run)
            keep("status messages", self._outbox.run)
            keep("logs", logs.run)
            keep("heartbeats", Heartbeats(bus, mine, lambda: services.beat(mine())).run)


def spoken(settings: Settings) -> object:
    """Return the settings whose change needs a new connection."""
    # A changed user of a topic takes effect at once.
    return settings.hub, _broker(settings), settings.job_topics


def _amqp(settings: Settings) -> ConnectedBus:
    try:
        from pilotage.bus.amqp.bus import AmqpBus  # agents that dial a hub do not need it
    except ImportError as error:
        message = f"the broker cannot be used: {error}"
        raise errors.ConfigError(message, hint="pip install 'pilotage[amqp]'") from error
    return AmqpBus(_broker(settings))


def _way(hub: DialledHub) -> Route:
    """Return the route to the hub; unencrypted connections must not leave this machine."""
    way = connect.route(hub.url, hub.proxy or None, hub.ca)
    if way.tls is None and not connect.is_near(way):
        message = f"{hub.url} is not encrypted and leaves this machine"
        raise errors.ConfigError(message, hint="`hub.url` begins with `https://`")
    return way


def _keys(settings: Settings, state: Path, now: Callable[[], float]) -> keys.AgentKeys:
    """Return the keys of the site at a hub; each hub has a folder of its own."""
    folder = state / "hubs" / settings.carrier if settings.carrier else state
    return keys.AgentKeys(folder, settings.hub.token_file, now)


def home(settings: Settings, state: Path, now: Callable[[], float]) -> HubAddress | None:
    """Return the address of a carrier's hub for transfers; none if the agent does not dial it."""
    hub = settings.hub
    if not hub.url:
        return None
    way, kept = _way(hub), _keys(settings, state, now)
    login = f"{quote(way.login, safe=':')}@" if way.login else ""
    return HubAddress(
        url=f"{'https' if way.tls else 'http'}://{_bracketed(way.host)}:{way.port}", tls=way.tls,
        proxy=f"http://{login}{_bracketed(way.via[0])}:{way.via[1]}" if way.via[0] else "",
        key=kept.now, version=kept.version,
    )  # fmt: skip


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _broker(settings: Settings) -> Broker:
    """Return the settings of the broker; one agent at a time gets jobs."""
    bus = settings.bus
    same = {name: getattr(bus, name) for name in Broker.__struct_fields__ if hasattr(bus, name)}
    single = (*settings.job_topics, settings.control_topic)
    return msgspec.structs.replace(Broker(**same), single=single)


class _Open(msgspec.Struct):
    """One connection with its last known problem."""

    connection: Connection
    scope: anyio.CancelScope
    trouble: str
    since: float


class Connections:
    """Connections to the broker and hubs of the settings; failures of one do not affect others."""

    def __init__(self, services: AgentServices) -> None:
        """Prepare; `run` starts it."""
        self._services = services
        self._kept: dict[str, _Open] = {}
        self._taking = True
        services.settings.on_renewal.append(self._renew)

    @property
    def away(self) -> frozenset[str]:
        """The users that are hubs without a connection."""
        connections = [one.connection for one in self._kept.values() if one.connection.trouble]
        return frozenset(one.settings().hub.user for one in connections if one.settings().hub.url)

    def waiting(self, carrier: str) -> int:
        """Return how many status messages wait to be sent by a carrier."""
        kept = self._kept.get(carrier)
        return kept.connection.waiting if kept else 0

    def connections(self) -> tuple[ConnectionStatus, ...]:
        """Return the state of each connection, and since when."""
        found = []
        for name, one in self._kept.items():
            settings, trouble = one.connection.settings(), one.connection.trouble
            if trouble != one.trouble:
                one.trouble, one.since = trouble, self._services.project.clock.now()
            found.append(
                ConnectionStatus(
                    name=name, kind="hub" if settings.hub.url else "broker",
                    place=settings.source, site=settings.site, trouble=trouble, since=one.since,
                    user=settings.hub.user if settings.hub.url else "",
                )
            )  # fmt: skip
        return tuple(found)

    def take(self, *, jobs: bool) -> None:
        """Take jobs, or leave them where they come from."""
        self._taking = jobs
        for one in self._kept.values():
            one.connection.take(jobs=jobs)

    async def run(self) -> None:
        """Stay connected to all carriers until cancelled."""
        settings = self._services.settings
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    dialled = _dialled(settings())
                    cancel = functools.partial(
                        pilots.cancel_unserved, settings=settings(),
                        now=self._services.project.clock.now(),
                    )  # fmt: skip
                    if await self._services.writer.run(cancel):
                        self._services.poke()
                    self._follow(tasks, settings().carriers)
                    await settings.other(_dialled, dialled)
        finally:
            self._kept.clear()

    def _follow(self, tasks: TaskGroup, names: tuple[str, ...]) -> None:
        """Connect to new carriers, and disconnect from removed ones."""
        for name in self._kept.keys() - set(names):
            self._kept.pop(name).scope.cancel()
        for name in names:
            if name not in self._kept:
                connection = Connection(name, self._services)
                connection.take(jobs=self._taking)
                now = self._services.project.clock.now()
                kept = _Open(connection, anyio.CancelScope(), connection.trouble, now)
                self._kept[name] = kept
                tasks.start_soon(self._keep, name, kept)

    async def _keep(self, name: str, kept: _Open) -> None:
        label = f"messages of {name}" if name else "messages"
        with kept.scope:
            await self._services.parts.keep(label, kept.connection.run)

    def _renew(self, carrier: str) -> None:
        if carrier in self._kept:
            self._kept[carrier].connection.renew()


def _dialled(settings: Settings) -> object:
    """Return the settings whose change opens or closes a connection."""
    return settings.carriers, sorted(one.user for one in settings.dialled.values())
