"""An agent, put together: jobs come from the bus, run at this site, and are told of by the bus.

Carriers: Talk ◀──▶ bus: Ingest ──▶ store ──▶ Caps ──▶ Queue ◀──▶ Direct ──▶ batch system: Work
               Controls ──▶ store ──▶ Outbox              ▲
                                                          └── EdgeData ◀──▶ transfer servers
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.to_thread

from pilotage import __version__
from pilotage.agent import owner, pilots, records, systemd
from pilotage.agent.caps import Caps, Going
from pilotage.agent.carriers import Carriers
from pilotage.agent.connection import Parties
from pilotage.agent.janitor import Janitor
from pilotage.agent.live_settings import Followed
from pilotage.agent.registry import Registry
from pilotage.agent.relay import Wayout
from pilotage.agent.settings import Settings
from pilotage.agent.status import Certificate, Look, free, write
from pilotage.agent.work import Work
from pilotage.base import clock, errors
from pilotage.base.backoff import Backoff
from pilotage.base.supervise import Supervisor
from pilotage.batch import files
from pilotage.batch import records as sites
from pilotage.bus.model import Drain, Heartbeat
from pilotage.edge import message
from pilotage.edge.order import PILOT
from pilotage.match.queue import JobQueue
from pilotage.project import folder as pokes
from pilotage.project import settings as config
from pilotage.project.folder import ProjectFolder
from pilotage.project.settings import AGENT_FILE
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.edge")
#: How often people find anew how the agent is, and who serves the site, in seconds.
_SHOW_S = 2.0
#: How soon a site that is drained takes no more messages, in seconds.
_HEED_S = 0.5
#: Pauses before a part that failed is restarted.
_RESTART = Backoff(first=0.5, limit=60.0)


class Agent:
    """One process that serves one site."""

    def __init__(
        self, project: ProjectFolder, writer: Writer, open_reader: Callable[[], Db], *,
        take_over: bool, hub: str = "",
    ) -> None:  # fmt: skip
        """Read the settings; nothing happens before `run`. Jobs come from `hub`, if it is named."""
        self._project, self._writer, self._take_over = project, writer, take_over
        self._now = project.clock.now
        self._settings = Followed(project.root / AGENT_FILE, hub)
        self._parts = Supervisor(project.clock, _log, _RESTART)
        self._queue = JobQueue(
            writer, config.matcher(project.settings), str(project.state / "jobs"), project.clock,
            clock.dice(),
        )  # fmt: skip
        registry = self._registry = Registry(project.root)
        self._wayout = Wayout(self._settings, self._parts)
        self._carriers = Carriers(
            Parties(
                project, self._settings, self._parts, writer, open_reader, registry,
                self._queue.poke, self._beat,
            )
        )  # fmt: skip
        self._work = Work(
            project, self._settings, writer, self._queue, registry, open_reader, self._wayout.link
        )
        self._reader = open_reader()
        self._certificate = Certificate()
        self._since = self._now()
        self._epoch = 0

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled."""
        project, settings = self._project, self._settings()
        mine = owner.me(files.identity(project.state), self._since)
        # A folder at another host is not seen here; what is there is told apart by the store.
        folder = str(project.state) if settings.batch.host else settings.batch.folder
        file = owner.file_of(folder, settings.site)
        take = functools.partial(owner.take, file, mine, over=self._take_over)
        await anyio.to_thread.run_sync(take)
        begin = functools.partial(records.begin, now=self._since)
        self._epoch = await self._writer.run(begin)
        async with anyio.create_task_group() as tasks:
            for name, part in self._all().items():
                tasks.start_soon(self._parts.keep, name, part)
            tasks.start_soon(self._guard, file, mine)
            tasks.start_soon(systemd.live)
            ready()
            systemd.tell("READY=1")
            try:
                await anyio.sleep_forever()
            finally:
                systemd.tell("STOPPING=1")

    def _all(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Name everything that goes on."""
        poke, state = self._queue.poke, self._project.state
        return {
            "the batch system": self._work.run,
            "messages": self._carriers.run,
            "limits": Caps(self._writer, self._settings, self._now, poke, self._let_pilots).run,
            "clearing up": Janitor(
                state, self._writer, self._settings, self._now, lambda: self._work.root_here
            ).run,
            "settings": self._settings.run,
            "draining": self._heed,
            "relays": self._wayout.run,
            "pokes": lambda: pokes.listen(self._project.poke_path, poke),
            "looking": self._show,
        }

    def _let_pilots(self, db: Db, going: Going, now: float) -> int:
        """Let pilots of hubs go on, within what each may have."""
        app = pilots.found(self._registry.find)
        return pilots.settle(db, app, self._settings(), going, now, self._carriers.away)

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

    async def _guard(self, file: Path, mine: owner.Owner) -> None:
        """End this process once another one serves the site."""
        while True:
            await anyio.sleep(_SHOW_S)
            await anyio.to_thread.run_sync(owner.check, file, mine)
            if records.epoch(self._reader) != self._epoch:
                raise errors.Conflict("another agent uses this store", hint="stop one of them")

    async def _show(self) -> None:
        """Let people at this machine see how it is."""
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
            look = Look(
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
        """Return how the site is, for what the settings are for."""
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
            site=settings.site, time=now, version=__version__, epoch=self._epoch,
            since=self._since, draining=self._drained(), drain=self._drain(),
            counts=records.counts(self._reader, user),
            outbox=self._carriers.waiting(settings.carrier), certificate_days=days, disk_free=disk,
            scheduler=self._work.scheduler(now), applications=names,
            carries=carries, rules=rules,
        )  # fmt: skip
