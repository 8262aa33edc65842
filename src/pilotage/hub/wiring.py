"""Everything, put together: this file is the architecture of one process.

files, timers, messages, ends of jobs ──▶ Intake ──▶ store ──▶ Queue ◀──▶ LocalSite
                                            ▲                    ▲
                      books ──▶ Keeper ─────┘                    └─▶ Service ◀──▶ pilots, programs
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from pilotage import clock, text
from pilotage.bus.memory import MemoryBus
from pilotage.bus.model import Bus
from pilotage.event.file.source import FileSource
from pilotage.hub import config, guard, housekeeping
from pilotage.hub.doors import Doors
from pilotage.hub.forward import Forward, Target
from pilotage.hub.intake import Intake
from pilotage.hub.keeper import Keeper
from pilotage.hub.known import StoredFiles
from pilotage.hub.project import Project
from pilotage.hub.service import Service
from pilotage.hub.sources import Bell, Ends, Timers
from pilotage.job import model, moves
from pilotage.match.queue import Queue
from pilotage.site.local import Listener, LocalSite
from pilotage.store import Db, Writer, connect

_log = logging.getLogger("pilotage.event")


async def up(
    project: Project, *, until_idle: bool = False, ready: Callable[[], None] = lambda: None,
    bus: Bus | None = None, local: bool = True, serve: Callable[[str], None] | None = None,
    target: Target | None = None,
) -> None:  # fmt: skip
    """Run a project until cancelled, or until nothing is left to do.

    Without `local` nothing runs on this machine; with `serve` the port is open, and that is told
    its address; with a `target` all jobs go to that hub.
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

        hub = Hub(project, writer, open_reader, bus or MemoryBus())
        if target:
            await hub.watch(target, until_idle=until_idle, ready=seen_all)
        else:
            await hub.run(until_idle=until_idle, ready=seen_all, local=local, serve=serve)


class Hub(Listener):
    """One process that takes events in, makes jobs of them and runs them here."""

    def __init__(
        self, project: Project, writer: Writer, open_reader: Callable[[], Db], bus: Bus
    ) -> None:
        """Put the parts together; nothing happens before `run`."""
        call_soon = asyncio.get_running_loop().call_soon_threadsafe
        now = project.clock
        self._project, self._writer, self._now, self._bus = project, writer, now, bus
        self._jobs, self._timing, self._ended, self._ports, self._settling, self._inbox = (
            Bell(call_soon) for _ in range(6)
        )
        self._lineage = guard.Lineage()
        self._intake = Intake(writer, open_reader(), now, self._lineage, self._jobs.ring)
        self._keeper = Keeper(project, writer, self._intake, self._ring_all)
        self._keeper.load()
        index = self._intake.index
        self._files = FileSource(
            index.scope, index.kinds, StoredFiles(open_reader()), self._intake, now,
            config.options(project.settings, project.state), _log.warning,
        )  # fmt: skip
        self._timers = Timers(self._intake, writer, now, self._timing)
        self._ends = Ends(self._intake, writer, self._ended)
        self._doors = Doors(project, writer, self._intake, self._inbox)
        self._sources = (self._files, self._intake, self._ends)
        self._queue = Queue(
            writer, config.matcher(project.settings), str(project.state / "jobs"),
            now, clock.dice(),
        )  # fmt: skip
        self._queue.on_end.append(lambda _: self._ended.ring())
        self._look = self._queue.poke
        self._service = Service(project, writer, open_reader, self._queue, self)
        self._site = LocalSite(
            writer, self._queue, config.place(project.settings, project.root),
            config.offer(project.settings), project.state, self,
        )  # fmt: skip

    async def run(
        self, *, until_idle: bool, ready: Callable[[], None], local: bool,
        serve: Callable[[str], None] | None,
    ) -> None:  # fmt: skip
        """Do all of it until cancelled, or until nothing is left to do."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._service.watch)
            linger = self._project.settings.site.on_exit == "linger"
            tasks.start_soon(lambda: self._site.run(linger=linger, taking=local))
            await self._begin(tasks)
            ready()
            if serve:
                tasks.start_soon(self._service.serve, serve)
            if until_idle:
                await housekeeping.until_quiet(self._sources, self._queue.never, self._writer)
                tasks.cancel_scope.cancel()

    async def watch(self, target: Target, *, until_idle: bool, ready: Callable[[], None]) -> None:
        """Take events in and make jobs of them here, and have another hub run those."""
        project, bell = self._project, Bell(asyncio.get_running_loop().call_soon_threadsafe)
        self._look = bell.ring
        forward = Forward(
            self._writer, target, str(project.root), str(project.state / "jobs"), self._now, self,
            bell, clock.dice(),
        )  # fmt: skip
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(forward.run)
            await self._begin(tasks)
            ready()
            if until_idle:
                await housekeeping.until_quiet(self._sources, lambda _: set(), self._writer)
                tasks.cancel_scope.cancel()

    async def _begin(self, tasks: TaskGroup) -> None:
        """Take events in from now on, those that were missed first."""
        for path, job, depth in self._writer.do(
            lambda db: db.rows("output_all", most=guard.MOST_OUTPUTS)
        ):
            self._lineage.outputs[text.load_path(path)] = (job, depth)
        for task in self._tasks():
            tasks.start_soon(task)
        await anyio.to_thread.run_sync(self._keeper.serve, self._files)
        tasks.start_soon(housekeeping.listen, self._project.poke_path, self._poked)
        self._ring_all()

    def _tasks(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        settings, now = self._project.settings, self._now
        return [
            lambda: housekeeping.watch(self._files, self._intake, self._writer),
            lambda: housekeeping.follow(self._keeper.stale, self._keeper.refresh),
            lambda: self._doors.take(self._keeper.refresh),
            self._wake_queue,
            self._timers.run,
            self._ends.run,
            self._doors.serve_http,
            lambda: self._doors.serve_bus(self._bus),
            lambda: self._doors.serve_ports(self._ports),
            lambda: housekeeping.settle(self._intake, now, self._settling),
            lambda: housekeeping.keep_tidy(self._writer, now, settings.retention),
        ]

    # -- what the parts tell each other -----------------------------------------------------------

    def started(self, claim: moves.Claim, binding: model.Binding, outputs: list[str]) -> None:
        """Let the loop guard know what runs."""
        runs = guard.Runs(claim.job, claim.depth, binding.path, self._now.now())
        self._lineage.started(claim.rule, runs, outputs)

    def ended(self, rule: str, job: int) -> None:
        """Let the loop guard and the rules that wait for ends know."""
        self._lineage.ended(rule, job, self._now.now())
        self._ends.idle = False
        self._ended.ring()

    async def _wake_queue(self) -> None:
        while True:
            await self._jobs.wait()
            self._look()
            self._settling.ring()

    def _poked(self) -> None:
        self._look()
        self._ring_all()

    def _ring_all(self) -> None:
        for bell in (self._timing, self._ended, self._ports, self._settling, self._inbox):
            bell.ring()
