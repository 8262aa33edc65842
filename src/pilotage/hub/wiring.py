"""The architecture of one hub process: its parts and how they are connected.

files, timers, messages, ends of jobs ──▶ EventPipeline ──▶ store ──▶ JobQueue ◀──▶ LocalSite
                                                ▲                      ▲ ▲ ▲
                            rule files ─────────┘                      │ │ └─▶ Places ◀──▶ sites
                                                                       │ └── flows
                                                                       └─▶ Service ◀──▶ pilots, API

The agent of an edge site is a process of another kind: agent ◀──▶ hubs, batch system.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from pilotage.base import clock
from pilotage.base.wakeup import Wakeup
from pilotage.edge.forward import Forward, TargetHub
from pilotage.edge.port.sites import AgentLines
from pilotage.flow import events as flow_events
from pilotage.flow import start as flows
from pilotage.hub import housekeeping
from pilotage.hub.places import HubParts, Places
from pilotage.hub.project import Project, read_flow
from pilotage.hub.service import Service
from pilotage.match.queue import JobQueue
from pilotage.project import settings
from pilotage.rule.pipeline import EventPipeline, job_ends
from pilotage.run.local import LocalSite
from pilotage.store import Db, Writer


class Hub:
    """One process that turns events into jobs and runs them."""

    def __init__(self, project: Project, writer: Writer, open_reader: Callable[[], Db]) -> None:
        """Connect the parts; nothing happens before `run` or `watch`."""
        self._project, self._writer, self._open_reader = project, writer, open_reader
        self._workflows = flows.QueuedWorkflows()
        self._queue = JobQueue(
            writer, settings.matcher(project.settings), str(project.state / "jobs"),
            project.clock, clock.dice(),
            lambda kind: self._places.may_come(kind),  # noqa: PLW0108 - places need the queue
            self._workflows.add,
        )  # fmt: skip
        #: Set whenever there may be new jobs.
        self._work = Wakeup(asyncio.get_running_loop().call_soon_threadsafe)
        self._events = EventPipeline(
            project, writer, open_reader,
            {"job ends": job_ends(flow_events.of_job), "flow ends": flow_events.STORY},
            (self._queue.poke, self._work.set), read_flow,
        )  # fmt: skip
        self._queue.on_end.append(self._events.wake_ends)
        lines = AgentLines()
        self._service = Service(
            project, writer, open_reader, self._queue, self._events, self._events.inbox.app, lines
        )
        launching = settings.place(project.settings, project.root)
        self._local = LocalSite(
            writer, self._queue, launching, settings.offer(project.settings), project.state,
            self._events,
        )  # fmt: skip
        self._places = Places(HubParts(
            project, writer, open_reader, self._queue, self._service.roster, launching,
            self._events, lines,
        ))  # fmt: skip

    async def run(
        self, *, until_idle: bool, ready: Callable[[], None], local: bool,
        serve: Callable[[str], None] | None,
    ) -> None:  # fmt: skip
        """Run until cancelled, or until nothing is left to do."""
        project, writer, reader = self._project, self._writer, self._open_reader
        events, queue, places = self._events, self._queue, self._places
        linger = project.settings.site.on_exit == "linger"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._service.watch)
            tasks.start_soon(
                flows.keep, project, writer, reader, self._work, queue, events.wake_ends,
                events.writes,
            )  # fmt: skip
            tasks.start_soon(flows.begin, project, writer, reader, self._workflows, events)
            tasks.start_soon(lambda: self._local.run(linger=linger, taking=local))
            await places.begin()
            tasks.start_soon(places.run_sites)
            tasks.start_soon(places.run_pools)
            tasks.start_soon(places.run_edges)
            await self._begin(tasks, ready)
            if serve:
                tasks.start_soon(self._service.serve, serve)
            if until_idle:
                await housekeeping.until_quiet(events.sources, queue.never, writer)
                await places.release_pilots()
                tasks.cancel_scope.cancel()

    async def watch(
        self, target: TargetHub, *, until_idle: bool, ready: Callable[[], None]
    ) -> None:
        """Turn events into jobs here, and forward the jobs to another hub."""
        project = self._project
        forward = Forward(
            self._writer, target, str(project.root), str(project.state / "jobs"), project.clock,
            self._events, self._work, clock.dice(),
        )  # fmt: skip
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(forward.run)
            await self._begin(tasks, ready)
            if until_idle:
                await housekeeping.until_quiet(self._events.sources, lambda _: set(), self._writer)
                tasks.cancel_scope.cancel()

    async def _begin(self, tasks: TaskGroup, ready: Callable[[], None]) -> None:
        """Start to take events, those that were missed first."""
        await self._events.begin(tasks)
        project = self._project
        retention = project.settings.retention
        tasks.start_soon(housekeeping.keep_tidy, self._writer, project.clock, retention)
        ready()
