"""From events to jobs: sources, rules in force, and what tells them of starts and ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import anyio.to_thread
from anyio.abc import TaskGroup

from pilotage.base import text
from pilotage.bus.port import Bus
from pilotage.event.file.known import StoredFiles
from pilotage.event.file.source import FileSource
from pilotage.hub import housekeeping
from pilotage.hub.project import Project
from pilotage.job import model, moves
from pilotage.project import settings as config
from pilotage.rule import guard
from pilotage.rule.inbox import Doors
from pilotage.rule.intake import Intake
from pilotage.rule.reload import Keeper
from pilotage.rule.timers import Bell, Ends, Timers
from pilotage.run.local import Listener
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.event")


class Reception(Listener):
    """Takes events in and makes jobs of them; hears what becomes of those."""

    def __init__(
        self, project: Project, writer: Writer, open_reader: Callable[[], Db], bus: Bus
    ) -> None:
        """Put the parts together; nothing happens before `begin`."""
        call_soon = asyncio.get_running_loop().call_soon_threadsafe
        now = project.clock
        self._project, self._writer, self._now, self._bus = project, writer, now, bus
        self._jobs, self._timing, self._ended, self._ports, self._settling, self._inbox = (
            Bell(call_soon) for _ in range(6)
        )
        #: Told whenever there may be new jobs.
        self.look: Callable[[], None] = lambda: None
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
        self._ends = Ends(self._intake, writer, self._ended, str(project.root))
        self.doors = Doors(project, writer, self._intake, self._inbox)
        self.sources = (self._files, self._intake, self._ends)

    async def begin(self, tasks: TaskGroup) -> None:
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
            lambda: self.doors.take(self._keeper.refresh),
            self._wake,
            self._timers.run,
            self._ends.run,
            self.doors.serve_http,
            lambda: self.doors.serve_bus(self._bus),
            lambda: self.doors.serve_ports(self._ports),
            lambda: housekeeping.settle(self._intake, now, self._settling),
            lambda: housekeeping.keep_tidy(self._writer, now, settings.retention),
        ]

    # -- what the parts tell each other -----------------------------------------------------------

    def started(self, claim: moves.Claim, binding: model.Binding, outputs: list[str]) -> None:
        """Let the loop guard know what runs."""
        runs = guard.Runs(claim.job, claim.depth, binding.path, self._now.now())
        self._lineage.started(claim.rule, runs, outputs)

    def writes(self, job: int, depth: int, outputs: list[str]) -> None:
        """Let the loop guard know which files a job is about to write."""
        self._lineage.writes(job, depth, outputs)

    def ended(self, rule: str, job: int) -> None:
        """Let the loop guard and the rules that wait for ends know."""
        self._lineage.ended(rule, job, self._now.now())
        self._ends.idle = False
        self._ended.ring()

    def ring_ended(self) -> None:
        """Let the rules that wait for ends look."""
        self._ends.idle = False
        self._ended.ring()

    async def _wake(self) -> None:
        while True:
            await self._jobs.wait()
            self.look()
            self._settling.ring()

    def _poked(self) -> None:
        self.look()
        self._ring_all()

    def _ring_all(self) -> None:
        for bell in (self._timing, self._ended, self._ports, self._settling, self._inbox):
            bell.ring()
