"""From events to jobs: sources, rules in force, and what tells them of starts and ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from pilotage.base import text
from pilotage.base.clock import Clock
from pilotage.base.wakeup import Wakeup, patience
from pilotage.event.file.known import StoredFiles
from pilotage.event.file.source import FileSource
from pilotage.job import model, moves
from pilotage.project import poke
from pilotage.project import settings as config
from pilotage.project.folder import ProjectFolder
from pilotage.rule import guard
from pilotage.rule.ends import Ends, Story
from pilotage.rule.inbox import Doors
from pilotage.rule.intake import Intake
from pilotage.rule.reload import Keeper
from pilotage.rule.timers import Timers
from pilotage.run.local import JobListener
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.event")
#: Rule files are few and their folder may be on any file system: looking is simpler than listening.
_FOLDER_S = 0.5


class Reception(JobListener):
    """Takes events in and makes jobs of them; hears what becomes of those."""

    def __init__(
        self, project: ProjectFolder, writer: Writer, open_reader: Callable[[], Db],
        stories: Mapping[str, Story], on_new_jobs: Callable[[], None],
    ) -> None:  # fmt: skip
        """Put the parts together; nothing happens before `begin`.

        Ends are read from `stories`; `on_new_jobs` is called whenever there may be new jobs.
        """
        call_soon = asyncio.get_running_loop().call_soon_threadsafe
        now = project.clock
        self._project, self._writer, self._now = project, writer, now
        self._jobs, self._timing, self._ended, self._ports, self._settling, self._inbox = (
            Wakeup(call_soon) for _ in range(6)
        )
        self._on_new_jobs = on_new_jobs
        self._lineage = guard.Lineage()
        self._intake = Intake(writer, open_reader(), now, self._lineage, self._jobs.set)
        self._keeper = Keeper(project, writer, self._intake, stories, self._ring_all)
        self._keeper.load()
        index = self._intake.index
        self._files = FileSource(
            index.scope, index.kinds, StoredFiles(open_reader()), self._intake, now,
            config.options(project.settings, project.state), _log.warning,
        )  # fmt: skip
        self._timers = Timers(self._intake, writer, now, self._timing)
        self._ends = Ends(self._intake, writer, self._ended, stories, str(project.root))
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
        tasks.start_soon(poke.listen, self._project.poke_path, self._poked)
        self._ring_all()

    def _tasks(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        now = self._now
        return [
            lambda: _watch(self._files, self._intake, self._writer),
            lambda: _follow(self._keeper.stale, self._keeper.refresh),
            lambda: self.doors.take(self._keeper.refresh),
            self._wake,
            self._timers.run,
            self._ends.run,
            lambda: self.doors.serve_ports(self._ports),
            lambda: _settle(self._intake, now, self._settling),
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
        self._ended.set()

    def ring_ended(self) -> None:
        """Let the rules that wait for ends look."""
        self._ends.idle = False
        self._ended.set()

    async def _wake(self) -> None:
        while True:
            await self._jobs.wait()
            self._on_new_jobs()
            self._settling.set()

    def _poked(self) -> None:
        self._on_new_jobs()
        self._ring_all()

    def _ring_all(self) -> None:
        for bell in (self._timing, self._ended, self._ports, self._settling, self._inbox):
            bell.set()


async def _watch(files: FileSource, intake: Intake, writer: Writer) -> None:
    """Run the file source in its thread; leave only when all that it put is on disk, or said."""

    def run() -> None:
        files.run()
        # What could not be written comes out at whoever brings more, and it brings no more.
        intake.flush()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, run)
        try:
            await anyio.sleep_forever()
        finally:
            # A store that cannot be written must not keep us from ending.
            writer.hurry()
            intake.close()
            files.stop()
            # Whoever waits for the first scan would else keep a failed start from ending.
            files.ready.set()


async def _settle(intake: Intake, clock: Clock, bell: Wakeup) -> None:
    """Fire rules on files that have been left alone for long enough."""
    while True:
        await bell.wait(patience(intake.next_due, clock.now()))
        if intake.next_due is not None and intake.next_due <= clock.now():
            await anyio.to_thread.run_sync(intake.due)


async def _follow(stale: Callable[[], bool], refresh: Callable[[], None]) -> None:
    """Call `refresh` in a worker thread whenever the folder of rules is not what was read."""
    while True:
        await anyio.sleep(_FOLDER_S)
        if stale():
            await anyio.to_thread.run_sync(refresh)
