"""Everything, put together: this file is the architecture of one process.

files, timers, messages, ends of jobs ──▶ Intake ──▶ store ──▶ Queue ◀──▶ LocalSite
                                            ▲                    ▲ ▲
                      books ──▶ Keeper ─────┘                    │ ├─▶ Sites ◀──▶ batch systems
                                                                 │ └── Flows ◀──▶ broker ◀──▶ sites
                                                                 └─▶ Service ◀──▶ pilots, programs

A process of another kind: edge.Agent ◀──▶ broker, hubs, batch system (the edge service).
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Protocol

import anyio
import anyio.lowlevel
import anyio.to_thread

from pilotage.base import clock, text
from pilotage.base.wakeup import Wakeup
from pilotage.batch import files, records
from pilotage.edge import records as edges
from pilotage.edge.forward import Forward, Target
from pilotage.edge.port.sites import AgentLines
from pilotage.flow import events as flow_events
from pilotage.flow import start as flows
from pilotage.hub import housekeeping
from pilotage.hub.project import Project
from pilotage.hub.service import ADDRESS, Service
from pilotage.match.queue import Queue
from pilotage.project import settings
from pilotage.rule import ends
from pilotage.rule.pipeline import Reception
from pilotage.run.local import LocalSite
from pilotage.store import Db, Writer, connect


class Runs(Protocol):
    """A process of another kind than a hub."""

    async def run(self, ready: Callable[[], None], /) -> None:
        """Do its work until cancelled; `ready` is called when it has begun."""


Instead = Callable[[Project, Writer, Callable[[], Db]], Runs]


async def up(
    project: Project, *, until_idle: bool = False, ready: Callable[[], None] = lambda: None,
    local: bool = True, serve: Callable[[str], None] | None = None,
    target: Target | None = None, instead: Instead | None = None,
) -> None:  # fmt: skip
    """Run a project until cancelled, or until nothing is left to do.

    Without `local` nothing runs on this machine; with `serve` the port is open, and that is told
    its address; with a `target` all jobs go to that hub; `instead` makes a process of another kind.
    """
    # What is loaded now stays; there is no use in walking through it with every collection.
    gc.freeze()
    with ExitStack() as stack:
        announce = stack.enter_context(project.alone())
        store = connect(project.db.path)
        if serve:
            await anyio.to_thread.run_sync(store.lengthen_log)
        writer = Writer(store)
        stack.callback(writer.close)

        def open_reader() -> Db:
            reader = connect(project.db.path)
            stack.callback(reader.close)
            return reader

        def seen_all() -> None:
            announce()
            ready()

        if instead:
            await instead(project, writer, open_reader).run(seen_all)
            return
        await writer.run(lambda db: flows.upgrade(db, project))
        hub = Hub(project, writer, open_reader)
        if target:
            await hub.watch(target, until_idle=until_idle, ready=seen_all)
        else:
            await hub.run(until_idle=until_idle, ready=seen_all, local=local, serve=serve)


class Hub:
    """One process that takes events in, makes jobs of them and has them run."""

    def __init__(self, project: Project, writer: Writer, open_reader: Callable[[], Db]) -> None:
        """Put the parts together; nothing happens before `run`."""
        self._project, self._writer, self._open_reader = project, writer, open_reader
        self._queue = Queue(
            writer, settings.matcher(project.settings), str(project.state / "jobs"),
            project.clock, clock.dice(),
        )  # fmt: skip
        #: Set whenever there may be new jobs.
        self._work = Wakeup(asyncio.get_running_loop().call_soon_threadsafe)
        self._reception = Reception(
            project, writer, open_reader,
            {"job ends": ends.jobs(flow_events.of_job), "flow ends": flow_events.STORY},
            self._look,
        )  # fmt: skip
        self._queue.on_end.append(lambda _: self._reception.ring_ended())
        self._lines = AgentLines()
        self._service = Service(
            project, writer, open_reader, self._queue, self._reception, self._reception.doors.app,
            self._lines,
        )  # fmt: skip
        self._place = settings.place(project.settings, project.root)
        self._site = LocalSite(
            writer, self._queue, self._place, settings.offer(project.settings), project.state,
            self._reception,
        )  # fmt: skip
        #: Lets all pilots of pools go.
        self._part: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint

    async def run(
        self, *, until_idle: bool, ready: Callable[[], None], local: bool,
        serve: Callable[[str], None] | None,
    ) -> None:  # fmt: skip
        """Do all of it until cancelled, or until nothing is left to do."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._service.watch)
            tasks.start_soon(self._keep_flows)
            tasks.start_soon(
                flows.begin, self._project, self._writer, self._open_reader, self._queue,
                self._reception,
            )  # fmt: skip
            linger = self._project.settings.site.on_exit == "linger"
            tasks.start_soon(lambda: self._site.run(linger=linger, taking=local))
            sites = files.names(self._project.root)
            # Until pools have been looked at, they may have pilots for any job.
            pools = housekeeping.pools(self._project.root)
            self._queue.hope = lambda _: bool(pools)
            await self._writer.run(lambda db: records.begin(db, sites))
            tasks.start_soon(self._keep_sites)
            tasks.start_soon(self._keep_pools)
            tasks.start_soon(self._keep_edges)
            await self._reception.begin(tasks)
            tasks.start_soon(self._keep_tidy)
            ready()
            if serve:
                tasks.start_soon(self._service.serve, serve)
            if until_idle:
                await self._quiet(self._queue.never)
                await self._part()
                tasks.cancel_scope.cancel()

    def _look(self) -> None:
        """Look for new jobs: the matchmaker, and what forwards jobs or serves workflows."""
        self._queue.poke()
        self._work.set()

    async def _keep_sites(self) -> None:
        """Have jobs and pilots run at the sites of the project."""
        if not files.names(self._project.root):
            await housekeeping.until_sites(self._project.root)
        from pilotage.hub.sites import Sites  # most projects have none, and it is much to load

        text.prime_all()
        await Sites(
            self._project, self._writer, self._queue, self._service.roster, self._place,
            self._reception,
        ).run()  # fmt: skip

    async def _keep_pools(self) -> None:
        """Steer pools of pilots, from the first one on."""
        before = await self._writer.run(lambda db: db.rows("pool_all"))
        if not before:
            await housekeeping.until_pools(self._project.root)
        from pilotage.pool.service import Pools  # most projects have none, and it is much to load

        text.prime_all()
        pools = Pools(self._project.root, self._queue, self._service.roster)
        self._part = pools.part
        await pools.run()

    async def _keep_edges(self) -> None:
        """Have jobs run at sites with an agent, from the first one on."""
        if not self._project.settings.bus.url:
            ported = await self._writer.run(edges.ported)
            while not (ported or self._lines.sites):
                await self._lines.changed()
        from pilotage.edge.heartbeats import HeartbeatMonitor
        from pilotage.hub import edge  # most projects have none, and it is much to load
        from pilotage.pool.edge_orders import EdgePilots

        text.prime_all()
        project = self._project
        address = await self._writer.run(lambda db: edge.address(db, project))
        sites = edge.make(
            project, self._writer, self._open_reader, self._queue, self._reception, self._lines,
            address,
        )  # fmt: skip
        pilots = EdgePilots(
            self._writer, self._service.roster, address, project.state / ADDRESS, project.clock
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(HeartbeatMonitor(project, self._writer, self._lines).run)
            tasks.start_soon(sites.run)
            tasks.start_soon(pilots.run)

    async def _keep_flows(self) -> None:
        """Serve workflows, from the first one on."""
        await flows.keep(
            self._project, self._writer, self._open_reader, self._work, self._queue,
            self._reception.ring_ended, self._reception.writes,
        )  # fmt: skip

    async def watch(self, target: Target, *, until_idle: bool, ready: Callable[[], None]) -> None:
        """Take events in and make jobs of them here, and have another hub run those."""
        project = self._project
        forward = Forward(
            self._writer, target, str(project.root), str(project.state / "jobs"), project.clock,
            self._reception, self._work, clock.dice(),
        )  # fmt: skip
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(forward.run)
            await self._reception.begin(tasks)
            tasks.start_soon(self._keep_tidy)
            ready()
            if until_idle:
                await self._quiet(lambda _: set())
                tasks.cancel_scope.cancel()

    async def _keep_tidy(self) -> None:
        retention = self._project.settings.retention
        await housekeeping.keep_tidy(self._writer, self._project.clock, retention)

    async def _quiet(self, never: Callable[[Db], set[int]]) -> None:
        await housekeeping.until_quiet(self._reception.sources, never, self._writer)
