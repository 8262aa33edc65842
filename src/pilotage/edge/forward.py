"""Forwarding of the jobs of this project to another hub; durable at every step.

A job is taken out of the queue here before the hub gets it, under a key that stays the same until
the hub has returned its number. After a crash or a lost connection it is sent again and is the same
job there; its end is requested until it is on disk here.
"""

from __future__ import annotations

import functools
import logging
import random
from typing import Any

import anyio
import msgspec

from pilotage.base import errors
from pilotage.base.backoff import Backoff, Pauses
from pilotage.base.clock import Clock
from pilotage.base.wakeup import Wakeup, patience
from pilotage.edge import forward_records
from pilotage.edge.forward_records import ForwardedJob
from pilotage.job import machine, records
from pilotage.job.model import JobEnd, State
from pilotage.link.dialer import HubConnection
from pilotage.node.dial import Route
from pilotage.pilot.model import PROTOCOL
from pilotage.run import launch
from pilotage.run.local import JobListener
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.forward")
#: Jobs in one request, and how long the hub may wait for ends.
_JOBS = 200
_WAIT_S = 30.0
_RECONNECT = Backoff(first=0.2, limit=15.0, jitter=0.5)


class TargetHub(msgspec.Struct, frozen=True):
    """The hub that jobs go to."""

    way: Route
    token: str

    @property
    def name(self) -> str:
        """The hub's name, for people and to know it again."""
        return f"{self.way.host}:{self.way.port}"


class Forward:
    """Forwards jobs of the queue here to another hub."""

    def __init__(
        self, writer: Writer, target: TargetHub, base: str, folder: str, clock: Clock,
        listener: JobListener, bell: Wakeup, dice: random.Random,
    ) -> None:  # fmt: skip
        """Prepare; `bell` wakes it when there may be jobs or requests."""
        self._writer = writer
        self._target = target
        self._base, self._folder = base, folder
        self._clock = clock
        self._listener = listener
        self._bell = bell
        self._dice = dice
        self._at = forward_records.ForwardState("", "")
        #: Taken, and not known to be at the hub; and those that are, by their number there.
        self._unsent: list[ForwardedJob] = []
        self._away: dict[int, ForwardedJob] = {}
        #: Ends of jobs whose number at the hub is not known yet.
        self._early: dict[int, JobEnd] = {}
        self._limited: dict[str, int] = {}
        self._noted: set[str] = set()

    async def run(self) -> None:
        """Forward jobs and receive their ends until cancelled."""
        await self._load()
        pauses, known = Pauses(_RECONNECT, self._dice), False
        while True:
            try:
                way, token = self._target.way, self._target.token
                async with HubConnection.open(way, "login", protocol=PROTOCOL, token=token) as line:
                    owner = str(line.terms.get("owner", ""))
                    _log.info("jobs go to %s as %s", self._target.name, owner)
                    pauses.reset()
                    known = True
                    await self._talk(line)
            except* errors.Denied as group:
                # A token that never worked is a mistake; one that did may be mended meanwhile.
                if not known:
                    raise
                self._complain(group, pauses.failures)
            except* errors.Unavailable as group:
                self._complain(group, pauses.failures)
            await self._clock.sleep(pauses.next())

    def _complain(self, group: BaseExceptionGroup[errors.PilotageError], tries: int) -> None:
        if tries == 0:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            _log.warning("%s; jobs wait here", error)

    async def _load(self) -> None:
        def read(db: Db) -> tuple[forward_records.ForwardState, list[ForwardedJob]]:
            at, moved = forward_records.where(db, self._target.name)
            return at, forward_records.load(db, renumber=moved)

        self._at, found = await self._writer.run(read)
        for out in found:
            self._begin(out)
            if out.remote is None:
                self._unsent.append(out)
            else:
                self._away[out.remote] = out

    def _begin(self, out: ForwardedJob) -> None:
        if out.limit:
            self._limited[out.limit] = self._limited.get(out.limit, 0) + 1
        binding = records.read_binding(out.claim.binding)
        self._listener.started(out.claim, binding, out.outputs)

    async def _talk(self, line: HubConnection) -> None:
        # Unconfirmed jobs are submitted first: otherwise their ends would not be recognised.
        await self._settle(line)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send, line)
            tasks.start_soon(self._follow, line)

    # -- submission ------------------------------------------------------------------------------

    async def _send(self, line: HubConnection) -> None:
        while True:
            await self._settle(line)
            await self._stop(line)
            due = await self._take()
            if not self._unsent:
                await self._bell.wait(patience(due, self._clock.now()))

    async def _take(self) -> float | None:
        """Take queued jobs; return when the next may be sent that may not be sent now."""
        now = self._clock.now()

        def step(db: Db) -> tuple[list[ForwardedJob], float | None]:
            taken = forward_records.take(
                db, dict(self._limited), _JOBS, self._folder, self._base, now
            )
            return taken, db.value("forward_due", now=now)

        taken, due = await self._writer.run(step)
        for out in taken:
            self._begin(out)
        self._unsent += taken
        return due

    async def _settle(self, line: HubConnection) -> None:
        """Submit all jobs that were taken to the hub."""
        while self._unsent:
            await self._submit(line, self._unsent[:_JOBS])
        if self._early:
            # Each number that we wait for is known now: the rest belongs to no job of ours.
            self._early.clear()
            await self._hear([], self._at.after)

    async def _submit(self, line: HubConnection, outs: list[ForwardedJob]) -> None:
        ready = []
        for out in outs:
            if why := self._objection(out):
                await self._refuse(out, State.CANCELLED, why)
                continue
            try:
                ready.append((out, forward_records.order(out, self._at, self._base)))
            except OSError as error:
                await self._refuse(out, State.FAILED, f"cannot start: {error}")
        if ready:
            await self._offer(line, ready)

    async def _offer(
        self, line: HubConnection, ready: list[tuple[ForwardedJob, dict[str, object]]]
    ) -> None:
        """Send jobs; when the hub refuses several, find the bad one by sending each half."""
        try:
            reply = await line.ask("submit", jobs=[order for _, order in ready])
        except errors.PilotageError as error:
            if error.retryable:
                raise errors.Unavailable(str(error)) from error
            if len(ready) == 1:
                await self._refuse(ready[0][0], State.REJECTED, f"the hub says: {error}")
                return
            middle = len(ready) // 2
            for half in (ready[:middle], ready[middle:]):
                await self._offer(line, half)
            return
        for note in set(reply.get("notes", ())) - self._noted:
            # Some of them will wait there for their sites; each reason is logged once.
            _log.warning("%s", note)
            self._noted.add(note)
        await self._confirm([out for out, _ in ready], [int(one) for one in reply["ids"]])

    async def _confirm(self, outs: list[ForwardedJob], ids: list[int]) -> None:
        def step(db: Db) -> None:
            for out, remote in zip(outs, ids, strict=True):
                forward_records.confirm(db, out, remote, self._target.name)

        await self._writer.run(step)
        early = []
        for out, remote in zip(outs, ids, strict=True):
            out.remote = remote
            self._away[remote] = out
            self._unsent.remove(out)
            if end := self._early.pop(remote, None):
                early.append(end)
        if early:
            await self._hear(early, self._at.after)

    def _objection(self, out: ForwardedJob) -> str:
        """Return why a job is not sent: its input has changed here."""
        return launch.objection(records.read_binding(out.claim.binding), out.spec.on_change)

    async def _refuse(self, out: ForwardedJob, state: State, why: str) -> None:
        await self._writer.run(
            lambda db: forward_records.finish(db, out, JobEnd(0, state, why), self._clock.now())
        )
        self._unsent.remove(out)
        self._over(out)

    async def _stop(self, line: HubConnection) -> None:
        """Cancel at the hub jobs that were cancelled here."""
        asked = {row[0] for row in await self._writer.run(lambda db: db.rows("job_asked"))}
        if not asked:
            return
        for remote, out in list(self._away.items()):
            if out.claim.job in asked and not out.stopping:
                out.stopping = True
                try:
                    await line.ask("cancel", jobs=[remote])
                except errors.Unavailable:
                    out.stopping = False
                    raise
                except errors.PilotageError as error:
                    # It has ended there by itself; its end is received separately.
                    _log.info("job %d: %s", out.claim.job, error)

    # -- ends ------------------------------------------------------------------------------------

    async def _follow(self, line: HubConnection) -> None:
        while True:
            reply = await self._ask_ends(line)
            await self._hear(msgspec.convert(reply["ends"], list[JobEnd]), int(reply["after"]))

    async def _ask_ends(self, line: HubConnection) -> dict[str, Any]:
        at = self._at
        try:
            return await line.ask("ends", tag=at.tag, after=at.after, wait=_WAIT_S)
        except errors.UsageError as error:
            # The hub refused another request, and closed the connection.
            raise errors.Unavailable(str(error)) from error

    async def _hear(self, ends: list[JobEnd], after: int) -> None:
        """Record ends, and the position after them, in one transaction."""
        over = []
        for end in ends:
            if end.state not in machine.FINAL:
                continue
            out = self._away.pop(end.job, None)
            if out is not None:
                over.append((out, end))
            elif self._unsent:
                self._early[end.job] = end
        self._at.after = max(self._at.after, after)
        step = functools.partial(self._write, over=over, note=not self._early)
        await self._writer.run(step)
        for out, _ in over:
            self._over(out)

    def _write(self, db: Db, *, over: list[tuple[ForwardedJob, JobEnd]], note: bool) -> None:
        for out, end in over:
            forward_records.finish(db, out, end, self._clock.now())
        if note:
            forward_records.note(db, self._at)

    def _over(self, out: ForwardedJob) -> None:
        if out.limit:
            self._limited[out.limit] -= 1
        # There may be room for others, and others may have waited for this one.
        self._bell.set()
        self._listener.ended(out.rule, out.claim.job)
