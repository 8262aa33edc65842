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
from pilotage.agent.controls import Controls
from pilotage.agent.ingest import Ingest
from pilotage.agent.live_settings import Followed
from pilotage.agent.logs import Logs
from pilotage.agent.outbox import Outbox
from pilotage.agent.registry import Registry
from pilotage.agent.settings import Hub, Settings
from pilotage.agent.status import Connection
from pilotage.base import errors, units
from pilotage.base.supervise import Supervisor
from pilotage.bus import wire
from pilotage.bus.amqp.model import Broker
from pilotage.bus.model import Heartbeat
from pilotage.bus.port import Bus
from pilotage.data.transfer.kind.hub import Home
from pilotage.edge.port import keys
from pilotage.edge.port.bus import HubBus, Pace
from pilotage.link import connect
from pilotage.node.dial import Route
from pilotage.project.folder import ProjectFolder
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.edge")
#: Seconds after which a heartbeat that was not delivered is tried again, at most.
_AGAIN_S = 2.0


class Beat:
    """Publishes heartbeats: the first at once, and each with the facts of its moment."""

    def __init__(
        self, bus: Bus, settings: Callable[[], Settings],
        facts: Callable[[], Awaitable[Heartbeat]],
    ) -> None:  # fmt: skip
        """Take who knows how the site is."""
        self._bus = bus
        self._settings = settings
        self._facts = facts

    async def run(self) -> None:
        """Beat until cancelled; one that the bus does not take is old by the next."""
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


class Parties(msgspec.Struct, frozen=True):
    """What is done with what is heard, and who knows how the site is."""

    project: ProjectFolder
    settings: Followed
    parts: Supervisor
    writer: Writer
    open_reader: Callable[[], Db]
    registry: Registry
    poke: Callable[[], None]
    #: Takes the settings of the carrier that the heartbeat goes by.
    beat: Callable[[Settings], Awaitable[Heartbeat]]


class Talk:
    """Jobs and controls come in by one carrier, status messages and heartbeats go out."""

    def __init__(self, carrier: str, among: Parties) -> None:
        """Take the name of the carrier; nothing happens before `run`."""
        self._name, self._among = carrier, among
        self._known = among.settings().by(carrier)
        self._bus: Carrier | None = None
        self._outbox: Outbox | None = None
        self._ingests: list[Ingest] = []
        self._taking = True

    def settings(self) -> Settings:
        """Return the settings of this carrier; once it is named no more, those it had."""
        now = self._among.settings()
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
        """Connect again, with the certificates and the token that there are now."""
        if self._bus:
            self._bus.renew()

    async def run(self) -> None:
        """Speak with the broker or the hub that the settings name, until cancelled."""
        while True:
            settings = self.settings()
            async with self._carrier(settings) as bus, anyio.create_task_group() as tasks:
                self._bus = bus
                tasks.start_soon(self._converse, bus, settings)
                await self._among.settings.other(
                    lambda _: spoken(self.settings()), spoken(settings)
                )
                _log.info("connecting to %s again, under other settings", settings.source)
                tasks.cancel_scope.cancel()

    def _carrier(self, settings: Settings) -> Carrier:
        hub = settings.hub
        if not hub.url:
            return _amqp(settings)
        project = self._among.project
        kept = _keys(settings, project.state, project.clock.now)
        pace = Pace(beat=hub.heartbeat, patience=hub.patience, retry=hub.retry, renew=keys.RENEW_S)
        way = functools.partial(_way, hub)
        return HubBus(
            functools.partial(keys.dial, way, settings.site, kept, hub.heartbeat), pace, hub.user
        )

    async def _converse(self, bus: Carrier, settings: Settings) -> None:
        among, mine = self._among, self.settings
        now, poke = among.project.clock.now, among.poke
        label = f"{self._name}: " if self._name else ""
        self._ingests = []
        self._outbox = Outbox(
            bus, among.writer, among.open_reader, mine, now,
            lambda: any(one.crowded for one in self._ingests),
        )  # fmt: skip
        async with anyio.create_task_group() as tasks:

            def keep(name: str, part: Callable[[], Awaitable[None]]) -> None:
                tasks.start_soon(among.parts.keep, f"{label}{name}", part)

            for topic, unnamed in settings.job_topics.items():
                one = Ingest(bus, among.writer, among.registry, mine, now, poke)
                one.taking = self._taking
                self._ingests.append(one)
                keep(f"jobs by {topic}", functools.partial(one.run, topic, unnamed))
            logs = Logs(self._outbox.publish, among.open_reader, mine)
            keep("controls", Controls(bus, among.writer, mine, now, poke, logs.follow).run)
            keep("status messages", self._outbox.run)
            keep("logs", logs.run)
            keep("heartbeats", Beat(bus, mine, lambda: among.beat(mine())).run)


def spoken(settings: Settings) -> object:
    """Return what is another one if the broker is to be called anew."""
    # Whose jobs come by a topic must not be as it was once the site says otherwise.
    return settings.hub, _broker(settings), settings.job_topics


def _amqp(settings: Settings) -> Carrier:
    try:
        from pilotage.bus.amqp.bus import AmqpBus  # agents that dial a hub do not need it
    except ImportError as error:
        message = f"the broker cannot be used: {error}"
        raise errors.ConfigError(message, hint="pip install 'pilotage[amqp]'") from error
    return AmqpBus(_broker(settings))


def _way(hub: Hub) -> Route:
    """Say how the hub is reached; what is not encrypted must not leave this machine."""
    way = connect.route(hub.url, hub.proxy or None, hub.ca)
    if way.tls is None and not connect.is_near(way):
        message = f"{hub.url} is not encrypted and leaves this machine"
        raise errors.ConfigError(message, hint="`hub.url` begins with `https://`")
    return way


def _keys(settings: Settings, state: Path, now: Callable[[], float]) -> keys.Keys:
    """Return what proves the site at a hub: each hub has a folder of its own."""
    folder = state / "hubs" / settings.carrier if settings.carrier else state
    return keys.Keys(folder, settings.hub.token_file, now)


def home(settings: Settings, state: Path, now: Callable[[], float]) -> Home | None:
    """Return how the hub of a carrier is asked for data; nothing if the agent does not dial it."""
    hub = settings.hub
    if not hub.url:
        return None
    way, kept = _way(hub), _keys(settings, state, now)
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


class _Kept(msgspec.Struct):
    """One carrier, and since when its connection is as it is."""

    talk: Talk
    scope: anyio.CancelScope
    trouble: str
    since: float


class Carriers:
    """Speaks with each carrier that the settings name; none of them disturbs another."""

    def __init__(self, among: Parties) -> None:
        """Get ready; nothing happens before `run`."""
        self._among = among
        self._kept: dict[str, _Kept] = {}
        self._taking = True
        among.settings.on_renewal.append(self._renew)

    @property
    def away(self) -> frozenset[str]:
        """The users that are hubs without a connection."""
        talks = [one.talk for one in self._kept.values() if one.talk.trouble]
        return frozenset(one.settings().hub.user for one in talks if one.settings().hub.url)

    def waiting(self, carrier: str) -> int:
        """Return how many status messages wait to be sent by a carrier."""
        kept = self._kept.get(carrier)
        return kept.talk.waiting if kept else 0

    def connections(self) -> tuple[Connection, ...]:
        """Describe how it goes with each carrier, and since when."""
        found = []
        for name, one in self._kept.items():
            settings, trouble = one.talk.settings(), one.talk.trouble
            if trouble != one.trouble:
                one.trouble, one.since = trouble, self._among.project.clock.now()
            found.append(
                Connection(
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
            one.talk.take(jobs=jobs)

    async def run(self) -> None:
        """Speak with all carriers until cancelled."""
        settings = self._among.settings
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    dialled = _dialled(settings())
                    cancel = functools.partial(
                        pilots.cancel_unserved, settings=settings(),
                        now=self._among.project.clock.now(),
                    )  # fmt: skip
                    if await self._among.writer.run(cancel):
                        self._among.poke()
                    self._follow(tasks, settings().carriers)
                    await settings.other(_dialled, dialled)
        finally:
            self._kept.clear()

    def _follow(self, tasks: TaskGroup, names: tuple[str, ...]) -> None:
        """Begin with carriers that are new, and end those that are gone."""
        for name in self._kept.keys() - set(names):
            self._kept.pop(name).scope.cancel()
        for name in names:
            if name not in self._kept:
                talk = Talk(name, self._among)
                talk.take(jobs=self._taking)
                now = self._among.project.clock.now()
                kept = _Kept(talk, anyio.CancelScope(), talk.trouble, now)
                self._kept[name] = kept
                tasks.start_soon(self._keep, name, kept)

    async def _keep(self, name: str, kept: _Kept) -> None:
        label = f"messages of {name}" if name else "messages"
        with kept.scope:
            await self._among.parts.keep(label, kept.talk.run)

    def _renew(self, carrier: str) -> None:
        if carrier in self._kept:
            self._kept[carrier].talk.renew()


def _dialled(settings: Settings) -> object:
    """Return what is another value if a carrier comes or goes."""
    return settings.carriers, sorted(one.user for one in settings.dialled.values())
