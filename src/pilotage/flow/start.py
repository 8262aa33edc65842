"""Lazy start of the workflow service; most projects have no workflows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio

from pilotage.base import text
from pilotage.base.wakeup import Wakeup
from pilotage.match.queue import JobQueue
from pilotage.project.folder import ProjectFolder
from pilotage.run.local import JobListener
from pilotage.store import Db, Writer

#: The least seconds between two looks at the store.
_GLANCE_S = 0.05


def upgrade(db: Db, project: ProjectFolder) -> None:
    """Create the jobs of attempts that are older than jobs at sites with an agent."""
    if db.rows("flows_unadopted"):
        from pilotage.flow.step_job import adopt  # only once

        adopt(db, str(project.state / "jobs"), project.clock.now())


async def keep(
    project: ProjectFolder, writer: Writer, open_reader: Callable[[], Db], bell: Wakeup,
    queue: JobQueue, told: Callable[[], None],
    writes: Callable[[int, int, list[str]], None],
) -> None:  # fmt: skip
    """Serve workflows until cancelled, from the first one on.

    `bell` rings when something may be new; `told` is called when tasks ended, and `writes` with a
    job, its depth and the files that its flow is to leave.
    """
    with writer.telling(bell.set):
        settings = project.settings
        if not (settings.bus.url and (settings.flows.users or settings.bus.jobs)):
            await _until_any(open_reader(), bell)
        from pilotage.flow.finished import FinishedFlows
        from pilotage.flow.service import FlowService
        from pilotage.flow.staging import TaskStaging

        text.prime_all()
        data = TaskStaging(project, writer, open_reader())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                FinishedFlows(project, writer, open_reader(), data.heal, told, writes).run
            )
            tasks.start_soon(FlowService(project, writer, open_reader, data, bell, queue, told).run)


class QueuedWorkflows:
    """Queued jobs that are workflows."""

    def __init__(self) -> None:
        """Begin with none."""
        self.bell = Wakeup(asyncio.get_running_loop().call_soon_threadsafe)
        self.jobs = set[int]()

    def add(self, jobs: list[int]) -> None:
        """Add jobs, and wake `begin`."""
        self.jobs.update(jobs)
        self.bell.set()


async def begin(
    project: ProjectFolder, writer: Writer, open_reader: Callable[[], Db], queued: QueuedWorkflows,
    listener: JobListener,
) -> None:  # fmt: skip
    """Begin the workflows of jobs until cancelled, from the first one on."""
    db = open_reader()
    if not db.rows("flow_jobs_live"):
        await queued.bell.wait()
    from pilotage.flow.workflow_job import WorkflowJobs

    text.prime_all()
    await WorkflowJobs(project, writer, db, listener, queued.jobs, queued.bell).run()


async def _until_any(db: Db, bell: Wakeup) -> None:
    while not db.value("flows_any"):
        await bell.wait()
        await anyio.sleep(_GLANCE_S)
