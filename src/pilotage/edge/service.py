"""All sites with an agent: one place for each, reached by the broker or the hub's port."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus

from pilotage.base import backoff, crash, errors
from pilotage.base.clock import Clock
from pilotage.base.supervise import Supervisor
from pilotage.bus import port
from pilotage.bus.model import Log
from pilotage.bus.port import Bus, Message
from pilotage.edge import records, silence, statuses
from pilotage.edge.logs import At, EdgeLogs
from pilotage.edge.place import EdgeHub, EdgePlace, SiteFacts
from pilotage.edge.port.sites import AgentLines, SiteLine
from pilotage.edge.records import RemoteAttempt
from pilotage.edge.send import MessageSender
from pilotage.edge.silence import SilenceLimits
from pilotage.edge.statuses import StepEvents, Word
from pilotage.job.moves import EndedJob
from pilotage.match.turn import TurnRecords
from pilotage.store import Db

_log = logging.getLogger("pilotage.edge")
#: Seconds between checks of the sites.
_LOOK_S = 0.5
#: A part that failed is restarted after 5 s.
_RESTART = backoff.fixed(5.0)


class Monitored(Protocol):
    """A connection with its current problem."""

    @property
    def trouble(self) -> str:
        """Why no messages are received; empty if they are."""
        ...


class MonitoredBus(Bus, Monitored, Protocol):
    """A bus with its current problem."""


class Carriers(NamedTuple):
    """Ways to reach sites."""

    #: Reaches the broker, if there is one.
    connect: Callable[[], AbstractAsyncContextManager[MonitoredBus]] | None
    #: Agents at this hub's port.
    lines: AgentLines


class EdgeSites:
    """Runs jobs at all sites with an agent that this hub has heard of."""

    def __init__(
        self, hub: EdgeHub, open_reader: Callable[[], Db], clock: Clock,
        patience: SilenceLimits, carriers: Carriers,
        known: Callable[[Db, float], Mapping[str, SiteFacts]], steps: StepEvents,
    ) -> None:  # fmt: skip
        """Prepare; `known` reads which sites there are, `steps` are those of workflows."""
        self._hub, self._steps = hub, steps
        self._queue, self._writer, self._address = hub.queue, hub.writer, hub.address
        self._open_reader, self._now, self._patience = open_reader, clock.now, patience
        self._parts = Supervisor(clock, _log, _RESTART)
        self._connect, self._lines, self._known = carriers.connect, carriers.lines, known
        self._places: dict[str, EdgePlace] = {}
        #: By site, the applications that workflows know of.
        self._offers: dict[str, tuple[str, ...]] = {}
        #: Set after each commit, for the sender of the broker and for those of the port.
        self._stirred, self._due = asyncio.Event(), asyncio.Event()
        #: By site at the port: rung when there is something to send to it.
        self._bells: dict[str, asyncio.Event] = {}
        self._logs: EdgeLogs

    async def run(self) -> None:
        """Serve all sites until cancelled."""
        call_soon = asyncio.get_running_loop().call_soon_threadsafe
        await self._hub.data.sweep()
        with (
            self._writer.telling(functools.partial(call_soon, self._stir)),
            contextlib.closing(self._open_reader()) as reader,
        ):
            self._logs = EdgeLogs(reader, self._writer, self._address, self._hub.folder, self._now)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow, tasks)
                keep = self._parts.keep
                tasks.start_soon(keep, "logs", self._logs.run)
                tasks.start_soon(keep, "requests for logs", self._ask_for_logs)
                tasks.start_soon(keep, "the port", self._talk_to_lines)
                if self._connect is not None:
                    talk = functools.partial(self._talk, self._connect)
                    tasks.start_soon(keep, "broker", talk)

    def _stir(self) -> None:
        self._stirred.set()
        self._due.set()

    async def _follow(self, tasks: TaskGroup) -> None:
        """Keep a place for each known site, and update it."""
        db = self._open_reader()
        while True:
            for name, facts in self._known(db, self._now()).items():
                place = self._places.get(name)
                if place is None:
                    place = self._places[name] = EdgePlace(name, facts, self._hub)
                    tasks.start_soon(self._parts.keep, f"site {name}", place.run)
                place.change(facts)
                await self._offered(name, facts.applications)
            await anyio.sleep(_LOOK_S)

    async def _ask_for_logs(self) -> None:
        while True:
            await self._logs.ask()
            await anyio.sleep(_LOOK_S)

    async def _offered(self, name: str, applications: tuple[str, ...]) -> None:
        """Report the applications of a site to workflows, if they changed."""
        if self._offers.get(name) == applications:
            return
        now, steps = self._now(), self._steps
        try:
            await self._writer.run(lambda db: steps.offered(db, name, applications, now))
        except errors.StoreUnavailable as error:
            _log.error("site %s: %s", name, error)
        else:
            self._offers[name] = applications

    # -- the broker ------------------------------------------------------------------------------

    async def _talk(self, connect: Callable[[], AbstractAsyncContextManager[MonitoredBus]]) -> None:
        reader = self._open_reader()
        pattern = self._address.reply or "status.**"
        with contextlib.closing(reader):
            async with connect() as bus, anyio.create_task_group() as tasks:
                # Answers before the subscription are lost: so nothing is sent before it.
                hear = functools.partial(self._hear, reader)
                await tasks.start(self._listen, bus, pattern, hear)
                wait = functools.partial(_wait, self._stirred)
                sender = MessageSender(bus, self._writer, reader, self._address, self._now, wait)
                tasks.start_soon(sender.run)
                tasks.start_soon(
                    silence.while_heard, lambda: bus.trouble, self._now, self._patience,
                    self._look_by_broker,
                )  # fmt: skip

    async def _hear(self, reader: Db, messages: Sequence[Message]) -> None:
        await self._take([*statuses.own(reader, statuses.read(messages))])

    async def _look_by_broker(self, since: float) -> None:
        ported = await self._writer.run(records.ported)
        await self._look(since, lambda site: site not in ported, lambda site: site not in ported)

    # -- agents at this hub's port ---------------------------------------------------------------

    async def _talk_to_lines(self) -> None:
        lines, reader = self._lines, self._open_reader()
        soon: set[str] = set()

        def listens(topic: str) -> None:
            soon.add(topic)
            self._due.set()

        lines.on_listen.append(listens)
        try:
            with contextlib.closing(reader):
                async with anyio.create_task_group() as tasks:
                    await tasks.start(self._listen, lines, "**", self._hear_lines)
                    tasks.start_soon(self._ring, reader, soon)
                    tasks.start_soon(
                        silence.while_heard, lambda: lines.trouble, self._now, self._patience,
                        self._look_at_lines,
                    )  # fmt: skip
                    await self._serve_lines(tasks, reader)
        finally:
            lines.on_listen.remove(listens)

    async def _serve_lines(self, tasks: TaskGroup, reader: Db) -> None:
        """Send messages to each connected site, independently of the others."""
        served: set[SiteLine] = set()
        while True:
            now = set(self._lines.sites.values())
            for line in now - served:
                tasks.start_soon(self._send_to, line, reader)
            served = now
            await self._lines.changed()

    async def _send_to(self, line: SiteLine, reader: Db) -> None:
        bell = self._bells[line.site] = asyncio.Event()
        sender = MessageSender(
            self._lines, self._writer, reader, self._address, self._now,
            functools.partial(_wait, bell), line.site,
        )  # fmt: skip
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sender.run)
            await line.over.wait()
            tasks.cancel_scope.cancel()

    async def _ring(self, reader: Db, soon: set[str]) -> None:
        """Ring for each site at the port that something is to be sent to."""
        while True:
            self._due.clear()
            if soon:
                # An agent that could not be reached before listens now.
                topics = sorted(soon)
                soon.clear()
                await self._writer.run(functools.partial(records.soon, topics=topics))
            now = self._now()
            for (topic,) in reader.rows("edge_topics_due", now=now):
                if bell := self._bells.get(topic.partition(".")[2]):
                    bell.set()
            due = reader.value("edge_message_next", now=now)
            await _wait(self._due, None if due is None else max(0.0, due - now))

    async def _hear_lines(self, messages: Sequence[Message]) -> None:
        await self._take(statuses.proved(statuses.read(messages)))

    async def _look_at_lines(self, since: float) -> None:
        ported, lines = await self._writer.run(records.ported), self._lines
        await self._look(since, lambda site: site in lines.sites, lambda site: site in ported)

    # -- both ------------------------------------------------------------------------------------

    async def _listen(
        self, bus: Bus, pattern: str, take: Callable[[Sequence[Message]], Awaitable[None]],
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:  # fmt: skip
        async with bus.subscribe(pattern, ahead=port.MOST_AT_ONCE) as incoming:
            task_status.started()
            await port.take_batches(
                incoming, lambda some: port.settle_batches(bus, some, take, _log)
            )

    async def _take(self, words: Sequence[Word]) -> None:
        self._logs.take(one for one in words if isinstance(one, Log))
        rest = [one for one in words if not isinstance(one, Log)]
        if not rest:
            return
        ended: list[RemoteAttempt] = []
        left: list[RemoteAttempt] = []

        def take(ledger: TurnRecords, db: Db, now: float) -> None:
            ended.clear()
            left.clear()
            ends: dict[int, list[EndedJob]] = {}
            for row in statuses.hear(db, rest, self._address, now, self._steps):
                place, note = self._places.get(row.site), troubles.get((row.job, row.number), "")
                if place is not None and (found := place.end(ledger, db, row, note)):
                    ends.setdefault(found[0], []).append(found[1])
                    ended.append(row)
                else:
                    left.append(row)
            ledger.finish(db, ends.items(), now)

        async with self._logs.finished(rest) as troubles:
            # The end of a job, and what follows from it, are safe together.
            await self._queue.do(take)
        crash.point("remote.heard")
        if ended:
            crash.point("remote.ended")
        for row in ended:
            self._places[row.site].ended(row)
        self._over(left, troubles)

    def _over(self, ended: Sequence[RemoteAttempt], troubles: Mapping[At, str] = {}) -> None:
        for row in ended:
            if place := self._places.get(row.site):
                place.over(row, troubles.get((row.job, row.number), ""))

    async def _look(
        self, since: float, reached: Callable[[str], bool], listened: Callable[[str], bool]
    ) -> None:
        now, patience = self._now(), self._patience
        await self._writer.run(lambda db: silence.ask(db, self._address, patience, now, reached))
        steps = self._steps
        self._over(
            await self._writer.run(
                lambda db: silence.give_up(db, patience, since, now, listened, steps)
            )
        )


async def _wait(bell: asyncio.Event, seconds: float | None) -> None:
    """Return when it rings, or some time is over."""
    with anyio.move_on_after(seconds):
        await bell.wait()
    bell.clear()
