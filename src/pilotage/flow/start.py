"""Begins the workflow service when there is something for it; most projects have no workflows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio

from pilotage.base import text
from pilotage.base.wakeup import Wakeup
from pilotage.match.queue import Queue
from pilotage.project.folder import ProjectFolder
from pilotage.run.local import JobListener
from pilotage.store import Db, Writer

#: The store is looked at so often at most, in seconds.
_GLANCE_S = 0.05


def upgrade(db: Db, project: ProjectFolder) -> None:
    """Give attempts from before steps at sites with an agent were jobs their jobs."""
    if db.rows("flows_unadopted"):
        from pilotage.flow.job import adopt  # only once

        adopt(db, str(project.state / "jobs"), project.clock.now())


async def keep(
    project: ProjectFolder, writer: Writer, open_reader: Callable[[], Db], bell: Wakeup,
    queue: Queue, told: Callable[[], None],
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
        from pilotage.flow.clear import Ends
        from pilotage.flow.data import Hand
        from pilotage.flow.service import Flows

        text.prime_all()
        data = Hand(project, writer, open_reader())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Ends(project, writer, open_reader(), data.heal, told, writes).run)
            tasks.start_soon(Flows(project, writer, open_reader, data, bell, queue, told).run)


async def begin(
    project: ProjectFolder, writer: Writer, open_reader: Callable[[], Db], queue: Queue,
    listener: JobListener,
) -> None:  # fmt: skip
    """Begin the workflows of jobs until cancelled, from the first one on."""
    bell, queued = Wakeup(asyncio.get_running_loop().call_soon_threadsafe), set[int]()

    def take(jobs: list[int]) -> None:
        queued.update(jobs)
        bell.set()

    queue.on_workflows = take
    db = open_reader()
    if not db.rows("flow_jobs_live"):
        await bell.wait()
    from pilotage.flow.jobs_that_are_flows import Beginner

    text.prime_all()
    await Beginner(project, writer, db, listener, queued, bell).run()


async def _until_any(db: Db, bell: Wakeup) -> None:
    while not db.value("flows_any"):
        await bell.wait()
        await anyio.sleep(_GLANCE_S)
