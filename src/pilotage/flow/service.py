"""The workflow service: loops that are woken by commits.

Whatever ends a task and whatever is due after that is one transaction; so the end of one job and
the jobs that follow are safe together.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from pilotage.base import backoff, crash, errors
from pilotage.base.supervise import Supervisor
from pilotage.base.wakeup import Wakeup
from pilotage.base.wakeup import patience as pause
from pilotage.batch import files
from pilotage.bus.port import Message
from pilotage.flow import accept, dispatch, moves, records, step_job
from pilotage.flow.accept import FlowIntake
from pilotage.flow.dispatch import Dispatched, HubCapabilities
from pilotage.flow.notify import BrokerSender, EndNotifier, StoryFollower
from pilotage.flow.orders import PlacedOrder, PreparedData, TaskData, Unfit
from pilotage.flow.step_job import Heard
from pilotage.match.queue import JobQueue
from pilotage.match.sites import SiteView
from pilotage.project.folder import ProjectFolder
from pilotage.status import sites
from pilotage.store import Db, Writer

if TYPE_CHECKING:
    from pilotage.bus.amqp.bus import AmqpBus

_log = logging.getLogger("pilotage.flow")
#: The least seconds between two looks at the store while no flow runs.
_GLANCE_S = 0.02
#: The same for each attempt that is over.
_EACH_S = 0.0005
#: Seconds until data is checked again that could not be checked.
_AGAIN_S = 10.0
#: The same while a site was asked to resend it: that is a look at the store.
_SOON_S = 1.0
#: A part that failed is restarted after 2 s.
_RESTART = backoff.fixed(2.0)
#: Tasks whose data is prepared at once.
_PREPARING = 64


class FlowService:
    """All workflows of a project."""

    def __init__(
        self, project: ProjectFolder, writer: Writer, open_reader: Callable[[], Db], data: TaskData,
        bell: Wakeup, queue: JobQueue, told: Callable[[], None],
    ) -> None:  # fmt: skip
        """Take the store; `bell` rings with each commit, and `told` is called when tasks ended."""
        self._project, self._writer, self._data = project, writer, data
        self._open_reader, self._reader = open_reader, open_reader()
        self._queue, self._told = queue, told
        self._now = project.clock.now
        self._parts = Supervisor(project.clock, _log, _RESTART)
        self._line = FlowIntake(project, self._flows, self._send)
        call_soon = asyncio.get_running_loop().call_soon_threadsafe
        self._any = bell
        self._queued, self._over, self._off, self._news, self._out, self._story, self._mail = (
            Wakeup(call_soon) for _ in range(7)
        )
        self._world = self._look_around()
        #: Tasks whose data is prepared, the same for other threads, and attempts whose data is
        #: checked.
        self._preparing: set[int] = set()
        self._busy: frozenset[int] = frozenset()
        self._checking: set[tuple[int, int]] = set()
        self._room = anyio.Semaphore(_PREPARING)
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Serve workflows until cancelled."""
        self._queue.follow_ends(self._follow)
        stories = StoryFollower(self._writer, self._open_reader(), self._story)
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            for name, part in (
                ("tasks", self._dispatch), ("ends", self._finish), ("recalls", self._recall),
                ("news", self._hear_news), ("stories", stories.run), ("posts", self._post().run),
                ("times", self._pump),
            ):  # fmt: skip
                again = functools.partial(self._again, part)
                tasks.start_soon(self._parts.keep, f"{name} of flows", again)
            if self._project.settings.bus.url:
                tasks.start_soon(self._line.run)

    # -- what is to be done ----------------------------------------------------------------------

    async def _pump(self) -> None:
        """Wake the loops that have something to do."""
        db = self._open_reader()
        while True:
            now = self._now()
            queued, over, off, news, out, story, live = db.row("flows_due", now=now) or (0,) * 7
            for wanted, bells in (
                (queued, (self._queued,)), (over, (self._over,)), (off, (self._off,)),
                (news, (self._news,)), (out, (self._out, self._mail)), (story, (self._story,)),
            ):  # fmt: skip
                if wanted:
                    for bell in bells:
                        bell.set()
            if not live:
                await anyio.sleep(_GLANCE_S)
            due = db.value("flows_next", now=now)
            await self._any.wait(pause(due, now))

    async def _again(self, part: Callable[[], Awaitable[None]]) -> None:
        """Run a loop; after a restart, look at once for what is left to do."""
        self._any.set()
        await part()

    # -- tasks are sent --------------------------------------------------------------------------

    def _look_around(self) -> HubCapabilities:
        project = self._project
        return HubCapabilities(
            frozenset(files.names(project.root)), frozenset(project.settings.app)
        )

    async def _dispatch(self) -> None:
        db = self._open_reader()
        while True:
            await self._queued.wait()
            self._world = self._look_around()
            while dispatch.any_new(db, self._preparing, self._now()):
                look = functools.partial(
                    dispatch.look, world=self._world, busy=self._busy, now=self._now()
                )
                self._sent(await self._writer.run(look))

    def _sent(self, sent: Dispatched) -> None:
        """Process the outcome of a dispatch."""
        if sent.made:
            crash.point("flow.attempted")
            self._queue.poke()
        for order in sent.orders:
            if order.task not in self._preparing and self._tasks is not None:
                self._preparing.add(order.task)
                self._busy = frozenset(self._preparing)
                self._tasks.start_soon(self._prepare, order)

    async def _prepare(self, order: PlacedOrder) -> None:
        """Prepare the data of an attempt, and make it."""
        try:
            async with self._room:
                await self._make(order, await self._data.prepare(order))
        except Unfit as error:
            reason = error.reason
            await self._writer.run(lambda db: moves.give_up(db, order.task, reason, self._now()))
        except errors.StoreUnavailable as error:
            _log.error("%s", error)
        except errors.PilotageError as error:
            reason = f"its data cannot be prepared: {error}"
            until = self._now() + _AGAIN_S
            await self._writer.run(lambda db: moves.postpone(db, order.task, reason, until))
        except Exception:  # noqa: BLE001 - one task must not keep the others from being sent
            _log.exception("task %d: this is a mistake in Pilotage", order.task)
            until = self._now() + _AGAIN_S
            reason = "an internal error keeps its data from being prepared; see the log"
            await self._writer.run(lambda db: moves.postpone(db, order.task, reason, until))
        finally:
            self._preparing.discard(order.task)
            self._busy = frozenset(self._preparing)
            self._queued.set()

    async def _make(self, order: PlacedOrder, prepared: PreparedData) -> None:
        step = functools.partial(dispatch.send, ready=[(order, prepared)], now=self._now())
        self._sent(Dispatched(made=await self._writer.run(step)))

    # -- what is heard ---------------------------------------------------------------------------

    def _follow(self, db: Db, now: float) -> None:
        """Process ends of jobs and dispatch what is due then, in the transaction of those ends.

        What needs more than the store is found there by who does it.
        """
        crash.point("flow.news")
        if step_job.news(db, now).ended:
            dispatch.look(db, self._world, self._busy, now)
            crash.point("flow.followed")

    async def _hear_news(self) -> None:
        while True:
            await self._news.wait()
            while True:
                found = await self._after(functools.partial(step_job.news, now=self._now()))
                if not found.more:
                    break

    async def _after(self, hear: Callable[[Db], Heard]) -> Heard:
        """Process news, and dispatch what is due then in the same transaction."""
        world, busy, now = self._world, self._busy, self._now()

        def step(db: Db) -> tuple[Heard, Dispatched]:
            found = hear(db)
            return found, dispatch.look(db, world, busy, now) if found.ended else Dispatched()

        found, sent = await self._writer.run(step)
        if found.ended:
            crash.point("flow.ended")
            self._told()
        self._sent(sent)
        self._check(found.check)
        if sent.more:
            self._queued.set()
        return found

    # -- ends ------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """End attempts that are over, as far as their ends were not processed at once."""
        db = self._open_reader()
        while True:
            await self._over.wait()
            found = records.over(db)
            late = [one for one in found if not step_job.wants_check(one)]
            if late:
                await self._after(functools.partial(_all_over, attempts=late, now=self._now()))
            self._check((one.task, one.number) for one in found if step_job.wants_check(one))
            # They stay while data is checked, and each commit wakes this loop: few are soon read.
            await anyio.sleep(min(_GLANCE_S, _EACH_S * len(found)))

    def _check(self, attempts: Iterable[tuple[int, int]]) -> None:
        for task, number in attempts:
            if (task, number) not in self._checking and self._tasks is not None:
                self._checking.add((task, number))
                self._tasks.start_soon(self._look_at, task, number)

    async def _look_at(self, task: int, number: int) -> None:
        """Check the data of an attempt, and end it."""
        try:
            async with self._room:
                end = await self._data.check(task, number)
            if end is None:
                # A site was asked for it; its answer wakes this loop, and so does time.
                await anyio.sleep(_SOON_S)
                return
            crash.point("flow.checked")
            now = self._now()
            await self._after(lambda db: Heard(ended=int(moves.end(db, task, number, end, now))))
        except errors.PilotageError as error:
            _log.warning("task %d: its outputs cannot be checked: %s", task, error)
            await anyio.sleep(_AGAIN_S)
        except Exception:  # noqa: BLE001 - one task must not keep the others from ending
            _log.exception("task %d: this is a mistake in Pilotage", task)
            await anyio.sleep(_AGAIN_S)
        finally:
            self._checking.discard((task, number))
            self._over.set()

    async def _recall(self) -> None:
        """Cancel jobs of attempts that are no longer wanted."""
        while True:
            await self._off.wait()
            while True:
                count = await self._writer.run(
                    functools.partial(step_job.cancel_unwanted, now=self._now())
                )
                crash.point("flow.called_off")
                if count:
                    self._queue.poke()
                if count < step_job.AT_ONCE:
                    break

    # -- the broker ------------------------------------------------------------------------------

    async def _send(self, bus: AmqpBus) -> None:
        """Send notifications while there is a connection."""
        await BrokerSender(bus, self._writer, self._open_reader(), self._now, self._out).run()

    async def _flows(self, messages: Sequence[Message]) -> None:
        """Store workflows that users send by the broker."""
        project, now = self._project, self._now()

        def standing(named: Collection[str]) -> SiteView:
            return sites.standing(self._reader, project.root, project.settings, now, named)

        await accept.take(messages, project.settings, self._writer, standing, now)
        crash.point("flow.posted")
        self._any.set()

    # -- notifications --------------------------------------------------------------------------

    def _post(self) -> EndNotifier:
        settings = self._project.settings.flows
        return EndNotifier(settings, self._writer, self._open_reader(), self._now, self._mail)


def _all_over(db: Db, attempts: Iterable[records.AttemptRow], now: float) -> Heard:
    return Heard(ended=sum(step_job.finish(db, one, now) for one in attempts))
