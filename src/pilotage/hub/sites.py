"""Sites of a project as places for jobs: batch systems over SSH, and edge sites with an agent."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

import anyio
import anyio.to_thread

from pilotage.base import errors, units
from pilotage.batch import files, records
from pilotage.batch.connections import SiteConnections
from pilotage.batch.data import SiteStaging
from pilotage.batch.driver import SubmissionDriver
from pilotage.batch.model import SiteSettings
from pilotage.batch.place import BatchPlace
from pilotage.batch.tunnels import Tunnels
from pilotage.data.export import Exports
from pilotage.data.image import Images
from pilotage.data.stage.digest import Digests
from pilotage.edge import broker, view
from pilotage.edge.data import EdgeData
from pilotage.edge.message import HubIdentity
from pilotage.edge.place import EdgeHub, SiteFacts
from pilotage.edge.port.sites import AgentLines
from pilotage.edge.service import Carriers, EdgeSites, MonitoredBus
from pilotage.edge.silence import SilenceLimits
from pilotage.edge.view import EdgeSite
from pilotage.flow import records as flow_records
from pilotage.flow.step_job import FlowSteps
from pilotage.hub.project import Project
from pilotage.hub.service import ADDRESS
from pilotage.match.queue import JobQueue
from pilotage.pilot import pack
from pilotage.pilot.table import PilotTable
from pilotage.pool.providers import Factory, HubOrders
from pilotage.run import launch
from pilotage.run.local import JobListener
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.batch")
#: How often new files of sites are looked for, in seconds.
_FOLLOW_S = 2.0
_THEIRS = "an agent serves a site of that name: rename the file"


class SharedData(NamedTuple):
    """Data services that all sites share."""

    digests: Digests
    exports: Exports
    images: Images


class BatchSites:
    """All sites that the project has files of."""

    def __init__(
        self, project: Project, writer: Writer, queue: JobQueue, roster: PilotTable,
        place: launch.LaunchContext, listener: JobListener,
    ) -> None:  # fmt: skip
        """Prepare; nothing happens before `run`."""
        self._project = project
        self._writer = writer
        self._queue = queue
        self._roster = roster
        self._place = place
        self._listener = listener

    async def run(self) -> None:
        """Run all sites until cancelled."""
        found = files.read_all(self._project.root)
        if not found:
            return
        program = await anyio.to_thread.run_sync(pack.archive)
        ways = SiteConnections(self._project, self._writer, program)
        digests, exports = Digests(), Exports()
        images = Images(self._project.root, self._project.state / "images")
        try:
            async with exports, anyio.create_task_group() as tasks:
                work = functools.partial(self._work, SharedData(digests, exports, images))

                def begin(name: str, site: SiteSettings) -> None:
                    tasks.start_soon(ways.keep, name, site, work)

                mine = {name: one for name, one in found.items() if await self._stands(name)}
                for name, site in mine.items():
                    begin(name, site)
                tasks.start_soon(self._follow, begin, set(mine))
                tasks.start_soon(ways.show)
        finally:
            digests.close()

    async def _follow(self, begin: Callable[[str, SiteSettings], None], known: set[str]) -> None:
        """Begin with sites whose files come later."""
        wrong: dict[str, str] = {}
        while True:
            await anyio.sleep(_FOLLOW_S)
            found = await anyio.to_thread.run_sync(files.names, self._project.root)
            for name in set(found) - known:
                try:
                    site = await anyio.to_thread.run_sync(files.read, self._project.root, name)
                    if not await self._stands(name):
                        raise errors.Conflict(_THEIRS)
                except errors.PilotageError as error:
                    if wrong.get(name) != str(error):
                        _log.error("site %s is not begun with: %s", name, error)
                    wrong[name] = str(error)
                else:
                    known.add(name)
                    begin(name, site)

    async def _stands(self, name: str) -> bool:
        """Return whether a name stands for the file of a site, and for no site with an agent."""
        stand = functools.partial(records.stand, site=name, way="batch")
        return await self._writer.run(stand)

    async def _work(
        self, goods: SharedData, name: str, driver: SubmissionDriver, doors: Tunnels
    ) -> None:
        """Run one site."""
        carrier = SiteStaging(driver.remote, doors, self._project.state, *goods)
        direct = BatchPlace(
            name, driver, self._queue, self._writer, self._place, carrier, self._listener
        )
        patron = HubOrders(name, self._roster, self._writer, self._project.state / ADDRESS)
        factory = Factory(name, driver, doors, patron)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(driver.remote.keep)
                tasks.start_soon(driver.run)
                tasks.start_soon(doors.run)
                tasks.start_soon(direct.run)
                tasks.start_soon(factory.run)
        finally:
            with anyio.CancelScope(shield=True):
                await carrier.close()


def make_edge_sites(
    project: Project, writer: Writer, open_reader: Callable[[], Db], queue: JobQueue,
    listener: JobListener, lines: AgentLines, address: HubIdentity,
) -> EdgeSites:  # fmt: skip
    """Create the service; `address` is that of this hub for edge sites.

    `lines` are agents at this hub's port.
    """
    settings = project.settings
    data = EdgeData(project, open_reader())
    shared = EdgeHub(
        queue, writer, data, listener, address, str(project.root), str(project.state / "jobs")
    )

    def connect() -> AbstractAsyncContextManager[MonitoredBus]:
        pattern = settings.flows.reply or "status.**"
        own = {pattern: f"{settings.bus.exchange}:jobs:{address.hub}"}
        return broker.connect(settings.bus, project.root, queues=own, fading=(pattern,))

    def known(db: Db, now: float) -> Mapping[str, SiteFacts]:
        # Names that stand for a file of the project are not theirs.
        rows = {row[1]: row for row in db.rows("site_all")}
        return {
            one.name: SiteFacts(
                one.batch,
                one.applications,
                _closed(one, rows[one.name][6]),
                view.offer(one, now),
                (one.rules, *(f"{queue.name}:{queue.time}" for queue in one.scheduler.queues)),
                frozenset(one.carries),
                one.carried,
            )
            for one in view.look(db, now).edges
            if one.name in rows and rows[one.name][10] == "agent"
        }

    patience = SilenceLimits(
        units.seconds(settings.flows.ask), units.seconds(settings.flows.silence)
    )
    carriers = Carriers(connect if settings.bus.url else None, lines)
    return EdgeSites(shared, open_reader, project.clock, patience, carriers, known, FlowSteps())


def _closed(one: EdgeSite, asked: str) -> str:
    """Return why a site gets no jobs; empty if it does."""
    if asked:
        return "a person had it drained"
    if one.state == "silent":
        return "no heartbeat comes from its agent"
    return "its administrator accepts no jobs" if one.draining else ""


def edge_address(db: Db, project: Project) -> HubIdentity:
    """Return the address of this hub for messages of edge sites."""
    return HubIdentity(flow_records.own_name(db), project.settings.flows.reply)
