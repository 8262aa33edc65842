"""A site with an agent as a place, after an unexpected error."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pilotage.base.clock import WallClock
from pilotage.bus.model import Status
from pilotage.edge import records, statuses
from pilotage.edge.message import HubIdentity
from pilotage.edge.place import EdgeHub, EdgePlace, SiteFacts
from pilotage.job import moves
from pilotage.job import records as jobs
from pilotage.job.model import App, JobSpec, NewJob, State
from pilotage.match.negotiate import Matcher
from pilotage.match.queue import JobQueue
from pilotage.match.share import Shares
from pilotage.run.local import JobListener
from pilotage.store import Db, Writer, connect

MINE = HubIdentity("abcd1234")


class Site:
    """A place for jobs of a store, run by hand."""

    def __init__(self, root: Path) -> None:
        self.writer = Writer(connect(root / "store.db"))
        self.db = connect(root / "store.db", readonly=True)
        folder = str(root / "jobs")
        self.queue = JobQueue(
            self.writer, Matcher(Shares(3600.0)), folder, WallClock(), random.Random(0)
        )
        data: Any = None
        hub = EdgeHub(self.queue, self.writer, data, JobListener(), MINE, str(root), folder)
        self.place = EdgePlace("mira", SiteFacts("slurm", ("sim",)), hub)

    async def do(self, step: Callable[[Db], Any]) -> Any:
        return await self.writer.run(step)

    async def submit(self) -> int:
        """Have a job wait for the site."""
        new = NewJob(JobSpec(App("sim"), "far", site="mira"))
        job: int = await self.do(lambda db: jobs.add(db, new, 1.0))
        self.queue.poke()
        return job

    async def hear(self, job: int, state: Any, seq: int = 1) -> None:
        """Have the site say something of a job."""
        word = Status(
            site="mira", job=7, key=MINE.key(f"job.{job}.1"), seq=seq, state=state, time=9.0
        )
        for row in await self.do(lambda db: statuses.hear(db, [word], MINE, 3.0)):
            self.place.over(row)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)

    def state(self, job: int) -> State:
        return jobs.get(self.db, job).state

    def there(self, job: int) -> bool:
        return records.get(self.db, job, 1) is not None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Have the place work while the block does, and fail after it."""
        task = asyncio.create_task(self.place.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    yield made
    made.writer.close()
    made.db.close()


async def test_an_end_that_was_not_written_is_written_after_a_mistake(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    usual, failed = site.queue.exchange, asyncio.Event()

    def exchange(place: int, ended: Any, **more: Any) -> Any:
        if ended and not failed.is_set():
            failed.set()
            raise RuntimeError("unexpected")
        return usual(place, ended, **more)

    monkeypatch.setattr(site.queue, "exchange", exchange)
    async with site.running():
        job = await site.submit()
        await site.until(lambda: site.there(job))
        await site.hear(job, "done")
        await failed.wait()
    async with site.running():
        await site.until(lambda: site.state(job) is State.DONE)


async def test_a_job_that_is_to_end_is_cancelled_after_a_mistake(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    stopping = asyncio.Event()

    async def hangs(_: object) -> None:
        stopping.set()
        await asyncio.Event().wait()

    async with site.running():
        job = await site.submit()
        await site.until(lambda: site.there(job))
        await site.hear(job, "running")
        with monkeypatch.context() as patch:
            patch.setattr(site.place, "_cancel", hangs)
            await site.do(lambda db: moves.cancel(db, jobs.get(db, job), now=4.0))
            site.queue.poke()
            await site.until(stopping.is_set)
    async with site.running():
        await site.until(lambda: records.get(site.db, job, 1).cancel)  # type: ignore[union-attr]
        await site.hear(job, "cancelled", 2)
        await site.until(lambda: site.state(job) is State.CANCELLED)


@pytest.mark.parametrize(
    "facts, held, most",
    [
        (SiteFacts(carries=frozenset({"sim"}), carried=131_072), 100, 131_072),
        (SiteFacts(carries=frozenset({"sim"}), carried=131_072), 101, 32_768),
        # An agent that does not report its limit is an older one.
        (SiteFacts(carries=frozenset({"sim"})), 0, 32_768),
        (SiteFacts(carried=131_072), 0, 0),
    ],
)
async def test_messages_carry_more_while_few_jobs_are_at_the_site(
    site: Site, facts: SiteFacts, held: int, most: int
):
    guest: Any = None
    site.place._facts = facts
    site.place._held = {(job, 1): guest for job in range(held)}
    assert site.place._carried("sim") == most
