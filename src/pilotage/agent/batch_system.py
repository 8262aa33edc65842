"""The batch system of a site: it runs the jobs, and relays connect its pilots to hubs."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence

import anyio
import anyio.to_thread
import msgspec

from pilotage.agent import pilots
from pilotage.agent.connection import home
from pilotage.agent.data import JobData, Resends
from pilotage.agent.live_settings import LiveSettings
from pilotage.agent.registry import Registry
from pilotage.agent.settings import RunningLimits, Settings
from pilotage.base import errors
from pilotage.base.supervise import Supervisor
from pilotage.batch.connections import SiteConnections
from pilotage.batch.driver import SubmissionDriver
from pilotage.batch.place import BatchPlace
from pilotage.batch.system.model import BatchError
from pilotage.batch.tunnels import Tunnels
from pilotage.bus.model import BatchQueue, Scheduler
from pilotage.data.transfer.kind.hub import HubAddress
from pilotage.data.transfer.version import Version
from pilotage.link import connect
from pilotage.link.relay import Relay
from pilotage.match.queue import JobQueue
from pilotage.pilot import pack
from pilotage.project import settings as config
from pilotage.project.folder import ProjectFolder
from pilotage.run.local import JobListener
from pilotage.store import Db, Writer

_LOOPBACK = "127.0.0.1:0"


class RelayRoute(msgspec.Struct, frozen=True):
    """An address at which a relay to one hub listens."""

    url: str
    #: An address of the cluster, or one of this machine that a port of the login node leads to.
    listen: str
    proxy: str = ""


def relay_routes(settings: Settings) -> tuple[RelayRoute, ...]:
    """Return the relays that hubs need."""
    found = [RelayRoute(settings.relay.hub, settings.relay.listen)] if settings.relay.hub else []
    found += [RelayRoute(one.url, one.relay, one.proxy) for one in settings.dialled.values()]
    if through_login(settings):
        found = [msgspec.structs.replace(one, listen=_LOOPBACK) for one in found]
    return tuple(dict.fromkeys(one for one in found if one.listen))


def through_login(settings: Settings) -> bool:
    """Return whether pilots come through the login node that the agent reaches by SSH."""
    return bool(settings.batch.host) and settings.batch.link == "relay"


class Relays:
    """Relays connections of pilots to hubs."""

    def __init__(self, settings: LiveSettings, parts: Supervisor) -> None:
        """Prepare; `run` starts it."""
        self._settings, self._parts = settings, parts
        #: The port here that leads to each hub, by its address.
        self._ports: dict[str, int] = {}

    async def run(self) -> None:
        """Relay by the current settings until cancelled."""
        while True:
            asked = relay_routes(self._settings())
            async with anyio.create_task_group() as tasks:
                for one in asked:
                    carry = functools.partial(self._carry, one)
                    tasks.start_soon(self._parts.keep, f"the relay to {one.url}", carry)
                await self._settings.other(relay_routes, asked)
                tasks.cancel_scope.cancel()

    async def _carry(self, way: RelayRoute) -> None:
        host, _, port = way.listen.rpartition(":")
        relay = Relay(connect.route(way.url, way.proxy or None))
        server = await relay.listen(host.strip("[]"), int(port))
        self._ports[way.url] = server.sockets[0].getsockname()[1]
        try:
            await anyio.sleep_forever()
        finally:
            del self._ports[way.url]
            server.close()
            with anyio.CancelScope(shield=True):
                await relay.end()

    async def link(self, doors: Tunnels, settings: Settings, url: str) -> str:
        """Return how pilots reach a hub; `settings` are those of what its orders come by."""
        if not through_login(settings) or all(
            one.url != url for one in relay_routes(self._settings())
        ):
            return pilots.link(settings, url)
        port = self._ports.get(url)
        if port is None:
            raise errors.Unavailable("there is no way through the login node yet")
        door = f"hub-{settings.carrier}" if settings.carrier else "hub"
        return f"relay:{doors.host}:{await doors.open(door, port)}"


_log = logging.getLogger("pilotage.edge")
_MOST_WORDS = 2000
#: Names of queues that a heartbeat can carry, and how many of them.
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@:-]{0,127}", re.ASCII)
_MOST_QUEUES = 200
#: Seconds between checks of an idle batch system, and of one that did not answer.
_ASK_S, _SOON_S = 60.0, 5.0
#: Seconds between checks of tunnels through the login node.
_DOORS_S = 1.0


class BatchSystem:
    """Runs jobs at the batch system by the current settings."""

    def __init__(
        self, project: ProjectFolder, settings: LiveSettings, writer: Writer, queue: JobQueue,
        registry: Registry, open_reader: Callable[[], Db],
        link: Callable[[Tunnels, Settings, str], Awaitable[str]],
    ) -> None:  # fmt: skip
        """Prepare; `run` starts it. `link` returns how pilots reach a hub."""
        self._link = link
        self._project, self._settings, self._open_reader = project, settings, open_reader
        self._writer, self._queue, self._registry = writer, queue, registry
        self._driver: SubmissionDriver | None = None
        self._begun = project.clock.now()
        #: The queues of the batch system when last read, and when that was.
        self._queues: tuple[Sequence[BatchQueue], float] = ((), 0.0)
        #: Whether the batch system was well at the last check, and since when.
        self._seen: tuple[bool, float] = (False, self._begun)
        #: By carrier: the hub that the agent dials, and what it was found by.
        self._dialled: dict[str, tuple[object, HubAddress | None]] = {}

    @property
    def root(self) -> str | None:
        """The folder of jobs that worker nodes see, once it is known."""
        return (self._driver.remote.hello.root or None) if self._driver else None

    @property
    def root_here(self) -> str | None:
        """The same, if this machine sees it, too."""
        return None if self._settings().batch.host else self.root

    def scheduler(self, now: float) -> Scheduler:
        """Return the state of the batch system."""
        driver = self._driver
        trouble = (driver.remote.trouble or driver.trouble) if driver else "not begun yet"
        if self._seen[0] == bool(trouble):
            self._seen = (not trouble, now)
        well, since = self._seen
        settings, (queues, seen) = self._settings(), self._queues
        return Scheduler(
            batch=settings.batch.batch, well=well, since=since, text=trouble[:_MOST_WORDS],
            queues=queue_facts(queues, settings.limits), seen=seen,
        )  # fmt: skip

    async def run(self) -> None:
        """Run jobs until cancelled; restart when the settings of the batch system change."""
        program = await anyio.to_thread.run_sync(pack.archive)
        while True:
            settings = self._settings()
            ways = SiteConnections(self._project, self._writer, program)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ways.show)
                tasks.start_soon(ways.keep, settings.site, settings.batch, self._serve)
                await self._settings.other(lambda one: one.batch, settings.batch)
                _log.info("the batch system is restarted with changed settings")
                tasks.cancel_scope.cancel()

    async def _serve(self, name: str, driver: SubmissionDriver, doors: Tunnels) -> None:
        """Run jobs while the driver is connected."""
        self._driver = driver
        data = JobData(
            driver.remote, self._writer, self._project.state, self._registry, self._settings,
            self._project.clock.now, self._home, functools.partial(self._link, doors),
        )  # fmt: skip
        resends = Resends(
            driver.remote, self._writer, self._open_reader, self._registry, self._settings,
            data.slots, self._project.clock.now, self._home,
        )  # fmt: skip
        place = config.place(self._project.settings, self._project.root)
        direct = BatchPlace(name, driver, self._queue, self._writer, place, data, JobListener())
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(driver.remote.keep)
                tasks.start_soon(driver.run)
                tasks.start_soon(doors.run)
                tasks.start_soon(direct.run)
                tasks.start_soon(resends.run)
                tasks.start_soon(self._ask, driver)
                tasks.start_soon(self._see, driver)
                tasks.start_soon(self._open_doors, driver, doors)
        finally:
            with anyio.CancelScope(shield=True):
                await data.close()

    def _home(self, user: str) -> HubAddress | None:
        """Return the address of the hub that is a user, for transfers.

        Its CA certificate is read again when it changes.
        """
        settings = self._settings()
        settings = settings.by(settings.carrier_of(user))
        known = settings.hub, Version.at(settings.hub.ca)
        before, found = self._dialled.get(settings.carrier, (None, None))
        if known != before:
            found = home(settings, self._project.state, self._project.clock.now)
            self._dialled[settings.carrier] = known, found
        return found

    async def _open_doors(self, driver: SubmissionDriver, doors: Tunnels) -> None:
        """Keep tunnels open for pilots that an earlier process had submitted."""
        while self._settings().batch.host:
            await driver.remote.ready()
            rows = await self._writer.run(lambda db: db.rows("edge_pilot_users"))
            for (user,) in rows:
                settings = self._settings()
                settings = settings.by(settings.carrier_of(user))
                # Submitting pilots reports the error; running ones wait until it is gone.
                with contextlib.suppress(errors.PilotageError):
                    await self._link(doors, settings, settings.hub.url)
            await anyio.sleep(_DOORS_S)

    async def _see(self, driver: SubmissionDriver) -> None:
        """Read the queues periodically, if the batch system shows them."""
        name = self._settings().batch.batch
        while True:
            await driver.remote.ready()
            batch = driver.commands.shows(name)
            if batch is None:
                return
            try:
                found = batch.queues(await driver.commands.see(batch))
                self._queues = found, self._project.clock.now()
            except (BatchError, errors.PilotageError) as error:
                # The last known queues stay, with their age.
                _log.info("the queues cannot be read: %s", error)
            await anyio.sleep(_ASK_S)

    async def _ask(self, driver: SubmissionDriver) -> None:
        """Check the batch system while it has no job of ours; otherwise the driver does."""
        name = self._settings().batch.batch
        while True:
            await driver.remote.ready()
            if not driver.out:
                try:
                    await driver.commands.listing(name)
                except (BatchError, errors.PilotageError) as error:
                    driver.note_trouble(name, str(error))
                else:
                    driver.note_trouble(name, "")
            await anyio.sleep(_SOON_S if driver.trouble else _ASK_S)


def queue_facts(queues: Iterable[BatchQueue], limits: RunningLimits) -> tuple[BatchQueue, ...]:
    """Return queues for a heartbeat, with the number of jobs that this site allows in each."""
    found: list[BatchQueue] = []
    for one in queues:
        if not _WORD.fullmatch(one.name) or len(found) == _MOST_QUEUES:
            continue
        jobs = limits.queues.get(one.name, limits.queue)
        found.append(msgspec.structs.replace(one, jobs=jobs))
    return tuple(found)
