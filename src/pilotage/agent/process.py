"""The agent process: jobs come from the bus, run at this site, and are reported by the bus.

Connections ◀──▶ bus: Ingest ──▶ store ──▶ JobLimits ──▶ Queue ◀──▶ Direct ──▶ BatchSystem
                      Controls ──▶ store ──▶ Outbox                   ▲
                                                                      └── JobData ◀──▶ servers
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from pilotage.agent import pilots, records
from pilotage.agent.batch_system import BatchSystem, Relays
from pilotage.agent.cleanup import Cleanup
from pilotage.agent.connection import AgentServices, Connections
from pilotage.agent.job_limits import ActiveJobs, JobLimits
from pilotage.agent.live_settings import LiveSettings
from pilotage.agent.registry import Registry
from pilotage.agent.settings import Settings
from pilotage.agent.status import AgentStatus, Certificate, free, write
from pilotage.base import clock, durable, errors
from pilotage.base.backoff import Backoff
from pilotage.base.supervise import Supervisor
from pilotage.batch import files
from pilotage.batch import records as sites
from pilotage.bus.fields import MOST_CARRIED
from pilotage.bus.model import Drain, Heartbeat
from pilotage.edge import message
from pilotage.edge.order import PILOT
from pilotage.match.queue import JobQueue
from pilotage.project import folder as pokes
from pilotage.project import settings as config
from pilotage.project.folder import ProjectFolder
from pilotage.project.settings import AGENT_FILE
from pilotage.store import Db, Writer

_OVER = "stop that one, and see that its jobs are over; then: `pilotage agent run --take-over`"


class SiteClaim(msgspec.Struct, frozen=True):
    """Which agent serves a site."""

    #: The identity of its store.
    store: str
    host: str
    since: float


def claim_file(folder: str, site: str) -> Path:
    """Name the file, below the folder that login nodes share."""
    return Path.home() / folder / f"agent-{site}.json"


def this_agent(store: str, now: float) -> SiteClaim:
    """Describe the agent of this process."""
    return SiteClaim(store, socket.gethostname(), now)


def claim_site(file: Path, mine: SiteClaim, *, over: bool = False) -> None:
    """Claim a site, or raise `Conflict` if another agent has it; `over` takes the claim over."""
    try:
        durable.folder(file.parent, mode=0o700)
        if over:
            durable.write(file, msgspec.json.encode(mine))
        else:
            with contextlib.suppress(FileExistsError):
                durable.create(file, msgspec.json.encode(mine))
    except OSError as error:
        raise errors.Unavailable(f"{file} cannot be written: {error.strerror}") from error
    check_claim(file, mine)


def check_claim(file: Path, mine: SiteClaim) -> None:
    """Raise `Conflict` unless this is still the agent of the site."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=SiteClaim)
    except OSError:
        # It cannot be read now; no other claim is known.
        return
    except msgspec.MsgspecError as error:
        message = f"{file} does not say who serves this site: {error}"
        raise errors.Conflict(message, hint=_OVER) from error
    if (found.store, found.host) != (mine.store, mine.host):
        message = f"an agent at {found.host} serves this site ({file})"
        raise errors.Conflict(message, hint=_OVER)


#: Seconds between notifications of the watchdog, if systemd sets no interval.
_USUAL_S = 30.0


def notify_systemd(words: str) -> None:
    """Notify systemd, if it started this process."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return
    address = "\0" + place[1:] if place.startswith("@") else place
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.setblocking(False)
        one.sendto(words.encode(), address)


async def feed_watchdog() -> None:
    """Report to systemd's watchdog that the event loop runs; it restarts a hanging process."""
    asked = os.environ.get("WATCHDOG_USEC", "")
    pause = int(asked) / 2e6 if asked.isdecimal() and int(asked) else _USUAL_S
    while True:
        notify_systemd("WATCHDOG=1")
        await anyio.sleep(pause)


_log = logging.getLogger("pilotage.edge")
#: Seconds between updates of the status file, and checks that we still serve the site.
_SHOW_S = 2.0
#: How soon a site that is drained takes no more messages, in seconds.
_HEED_S = 0.5
#: Pauses before a part that failed is restarted.
_RESTART = Backoff(first=0.5, limit=60.0)


class Agent:
    """One process that serves one site."""

    def __init__(
        self, project: ProjectFolder, writer: Writer, open_reader: Callable[[], Db], *,
        version: str, take_over: bool, hub: str = "",
    ) -> None:  # fmt: skip
        """Read the settings; nothing happens before `run`. Jobs come from `hub`, if it is named."""
        self._project, self._writer, self._take_over = project, writer, take_over
        self._now, self._version = project.clock.now, version
        self._settings = LiveSettings(project.root / AGENT_FILE, hub)
        self._parts = Supervisor(project.clock, _log, _RESTART)
        self._queue = JobQueue(
            writer, config.matcher(project.settings), str(project.state / "jobs"), project.clock,
            clock.dice(),
        )  # fmt: skip
        registry = self._registry = Registry(project.root)
        self._relays = Relays(self._settings, self._parts)
        self._carriers = Connections(
            AgentServices(
                project, self._settings, self._parts, writer, open_reader, registry,
                self._queue.poke, self._beat,
            )
        )  # fmt: skip
        self._work = BatchSystem(
            project, self._settings, writer, self._queue, registry, open_reader, self._relays.link
        )
        self._reader = open_reader()
        self._certificate = Certificate()
        self._since = self._now()
        self._epoch = 0

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled."""
        project, settings = self._project, self._settings()
        mine = this_agent(files.identity(project.state), self._since)
        # A folder at another host is not visible here; its files carry the identity of the store.
        folder = str(project.state) if settings.batch.host else settings.batch.folder
        file = claim_file(folder, settings.site)
        claim = functools.partial(claim_site, file, mine, over=self._take_over)
        await anyio.to_thread.run_sync(claim)
        begin = functools.partial(records.begin, now=self._since)
        self._epoch = await self._writer.run(begin)
        async with anyio.create_task_group() as tasks:
            for name, part in self._all().items():
                tasks.start_soon(self._parts.keep, name, part)
            tasks.start_soon(self._guard, file, mine)
            tasks.start_soon(feed_watchdog)
            ready()
            notify_systemd("READY=1")
            try:
                await anyio.sleep_forever()
            finally:
                notify_systemd("STOPPING=1")

    def _all(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return all parts of the process by name."""
        poke, state = self._queue.poke, self._project.state
        return {
            "the batch system": self._work.run,
            "messages": self._carriers.run,
            "limits": JobLimits(
                self._writer, self._settings, self._now, poke, self._let_pilots
            ).run,
            "clearing up": Cleanup(
                state, self._writer, self._settings, self._now, lambda: self._work.root_here
            ).run,
            "settings": self._settings.run,
            "draining": self._heed,
            "relays": self._relays.run,
            "pokes": lambda: pokes.listen(self._project.poke_path, poke),
            "looking": self._show,
        }

    def _let_pilots(self, db: Db, active: ActiveJobs, now: float) -> int:
        """Start pilots of hubs, within the limits of each."""
        app = pilots.found(self._registry.find)
        return pilots.settle(db, app, self._settings(), active, now, self._carriers.away)

    async def _heed(self) -> None:
        """Leave messages at the broker while the site is drained."""
        while True:
            self._carriers.take(jobs=not self._drained())
            await anyio.sleep(_HEED_S)

    def _drained(self) -> bool:
        return bool(sites.asked(self._reader, self._settings().site))

    def _drain(self) -> Drain:
        found = self._reader.row("site_drained", name=self._settings().site)
        if found is None:
            return Drain()
        by, since, why = found
        return Drain(by=message.line(by), since=since, why=message.line(why))

    async def _guard(self, file: Path, mine: SiteClaim) -> None:
        """End this process once another one serves the site."""
        while True:
            await anyio.sleep(_SHOW_S)
            await anyio.to_thread.run_sync(check_claim, file, mine)
            if records.epoch(self._reader) != self._epoch:
                raise errors.Conflict("another agent uses this store", hint="stop one of them")

    async def _show(self) -> None:
        """Write the status file periodically."""
        told: dict[str, str] = {}
        while True:
            settings = self._settings()
            beat, queue = await self._beat(settings), settings.batch.defaults.queue
            waits = await anyio.to_thread.run_sync(
                self._registry.waits, beat.scheduler.queues, queue
            )
            for name in waits.keys() - told.keys():
                _log.warning("the application %s: %s", name, waits[name])
            told = waits
            look = AgentStatus(
                beat=beat, carriers=self._carriers.connections(),
                parts=dict(self._parts.troubles), settings=self._settings.trouble,
                queue=queue, waits=waits,
            )  # fmt: skip
            await anyio.to_thread.run_sync(write, self._project.state, look)
            await self._project.clock.sleep(_SHOW_S)

    def _usable(self, settings: Settings) -> tuple[str, ...]:
        """List applications; behind SSH there are pilots alone."""
        found = self._registry.usable()
        return tuple(name for name in found if name == PILOT) if settings.batch.host else found

    async def _beat(self, settings: Settings) -> Heartbeat:
        """Return the heartbeat for one carrier."""
        now, folder = self._now(), self._work.root_here or str(self._project.state)
        # One of several hubs hears of its own jobs alone.
        user = settings.hub.user if settings.hub.url and settings.hubs else ""
        days, disk, names, carries, rules = await anyio.to_thread.run_sync(
            lambda: (
                self._certificate.days(settings.bus.certificate, now), free(folder),
                self._usable(settings),
                self._registry.carrying(dials=bool(settings.hub.url)),
                self._registry.rules(settings.batch.allow),
            )
        )  # fmt: skip
        return Heartbeat(
            site=settings.site, time=now, version=self._version, epoch=self._epoch,
            since=self._since, draining=self._drained(), drain=self._drain(),
            counts=records.counts(self._reader, user),
            outbox=self._carriers.waiting(settings.carrier), certificate_days=days, disk_free=disk,
            scheduler=self._work.scheduler(now), applications=names,
            carries=carries, carried=MOST_CARRIED, rules=rules,
        )  # fmt: skip
