"""Places beyond this machine: batch sites, pools and edge sites, begun when the first one appears.

Most projects have none of them, so that their modules are loaded only then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from pilotage.base import errors, text, toml
from pilotage.batch import files, records
from pilotage.edge import records as edges
from pilotage.edge.port.sites import AgentLines
from pilotage.hub.project import Project
from pilotage.hub.service import ADDRESS
from pilotage.match.cluster import Cluster
from pilotage.match.queue import JobQueue
from pilotage.pilot.table import PilotTable
from pilotage.run import launch
from pilotage.run.local import JobListener
from pilotage.store import Db, Writer

if TYPE_CHECKING:
    from pilotage.pool.service import Pools

_log = logging.getLogger("pilotage.hub")
#: Folders are few and may be on any file system: polling is simpler than inotify.
_FOLDER_S = 0.5


class HubParts(msgspec.Struct, frozen=True):
    """The parts of the hub that every kind of place needs."""

    project: Project
    writer: Writer
    open_reader: Callable[[], Db]
    queue: JobQueue
    roster: PilotTable
    #: How jobs are launched.
    launching: launch.LaunchContext
    listener: JobListener
    #: Agents at this hub's own port.
    lines: AgentLines


class Places:
    """Runs batch sites, pools of pilots and edge sites."""

    def __init__(self, parts: HubParts) -> None:
        """Prepare; nothing happens before `run_sites`, `run_pools` and `run_edges`."""
        self._hub = parts
        self._root = parts.project.root
        self._pools: Pools | None = None
        self._pools_at_start = bool(_pool_names(parts))

    def may_come(self, kind: Cluster) -> bool:
        """Return whether a pool would start a pilot for a kind of jobs by itself.

        Until pools have been read for the first time, they may have pilots for any job.
        """
        if self._pools is None or not self._pools.looked:
            return self._pools_at_start
        return self._pools.hope(kind)

    async def begin(self) -> None:
        """Record the names of the batch sites, before jobs are matched."""
        sites = files.names(self._root)
        await self._hub.writer.run(lambda db: records.begin(db, sites))

    async def release_pilots(self) -> None:
        """Stop all pilots of pools; return when they have ended."""
        await anyio.lowlevel.checkpoint()
        if self._pools is not None:
            await self._pools.part()

    async def run_sites(self) -> None:
        """Run jobs and pilots at the batch sites of the project."""
        hub = self._hub
        if not files.names(self._root):
            await self._first_site()
        from pilotage.hub.sites import BatchSites

        text.prime_all()
        await BatchSites(
            hub.project, hub.writer, hub.queue, hub.roster, hub.launching, hub.listener
        ).run()

    async def run_pools(self) -> None:
        """Control the pools of pilots."""
        hub = self._hub
        if not await hub.writer.run(lambda db: db.rows("pool_all")):
            while not await anyio.to_thread.run_sync(_pool_names, hub):  # noqa: ASYNC110 - a folder
                await anyio.sleep(_FOLDER_S)
        from pilotage.pool.service import Pools

        text.prime_all()
        self._pools = Pools(self._root, hub.queue, hub.roster)
        await self._pools.run()

    async def run_edges(self) -> None:
        """Run jobs at sites that have an agent."""
        hub, project = self._hub, self._hub.project
        if not project.settings.bus.url:
            ported = await hub.writer.run(edges.ported)
            while not (ported or hub.lines.sites):
                await hub.lines.changed()
        from pilotage.edge.heartbeats import HeartbeatMonitor
        from pilotage.hub.sites import edge_address, make_edge_sites
        from pilotage.pool.providers import EdgePilots

        text.prime_all()
        address = await hub.writer.run(lambda db: edge_address(db, project))
        sites = make_edge_sites(
            project, hub.writer, hub.open_reader, hub.queue, hub.listener, hub.lines, address
        )
        pilots = EdgePilots(hub.writer, hub.roster, address, project.state / ADDRESS, project.clock)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(HeartbeatMonitor(project, hub.writer, hub.lines).run)
            tasks.start_soon(sites.run)
            tasks.start_soon(pilots.run)

    async def _first_site(self) -> None:
        """Return when the project has files of sites; report a mistake in the first one."""
        wrong = ""
        while True:
            try:
                if await anyio.to_thread.run_sync(files.read_all, self._root):
                    return
            except errors.PilotageError as error:
                if str(error) != wrong:
                    _log.error("%s", error)
                wrong = str(error)
            await anyio.sleep(_FOLDER_S)


def _pool_names(parts: HubParts) -> list[str]:
    """List the pools of a project by name, without loading what controls them."""
    return toml.names(parts.project.root / "pools")
