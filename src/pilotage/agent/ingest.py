"""Ingest of messages from the bus: those that arrive together are stored in one transaction."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence

import anyio
import msgspec

from pilotage.agent import admission, job_limits, pilots, records
from pilotage.agent.admission import refuse
from pilotage.agent.model import Accepted, JudgedMessage, Rejected
from pilotage.agent.registry import Registry
from pilotage.agent.settings import Settings
from pilotage.base import crash, errors, text
from pilotage.bus import batches
from pilotage.bus.port import Bus, Message
from pilotage.edge.order import PILOT
from pilotage.job import records as jobs
from pilotage.job.model import JobSpec, State
from pilotage.store import Db, Writer


class Ingested(msgspec.Struct):
    """Counts of stored and refused messages."""

    new: int = 0
    #: Jobs that were there already.
    again: int = 0
    refused: int = 0
    #: Whether anything is queued that was not before.
    queued: bool = False


def store_messages(
    db: Db, arrivals: Sequence[JudgedMessage], settings: Settings, now: float
) -> Ingested:
    """Store jobs of messages, or refuse them."""
    new = [(one, one.verdict) for one in arrivals if isinstance(one.verdict, Accepted)]
    door = _Admission(db, records.known(db, [one.key.digits for _, one in new]), settings, now)
    digests = [records.digest(one.user, one.body) for one, verdict in new if verdict.job.key]
    door.refused = records.refusals(db, digests) if digests else {}
    for one in arrivals:
        why = door.let_in(one, one.verdict) if isinstance(one.verdict, Accepted) else one.verdict
        if why is not None:
            refuse(db, one, why, settings, now)
            door.entered.refused += 1
    return door.entered


class _Admission:
    """Admits jobs within one transaction."""

    def __init__(
        self, db: Db, known: dict[str, tuple[int, str]], settings: Settings, now: float
    ) -> None:
        self._db = db
        self._known = known
        self._limits = settings.limits
        self._dialled = bool(settings.hub.url)
        self._now = now
        # Waiting jobs are older: new ones get only the room that these leave.
        self._active, let = job_limits.settle(db, settings.limits, now)
        self._specs: dict[str, int] = {}
        #: By digest, code and reason with which a message with a key was refused before.
        self.refused: dict[str, tuple[str, str]] = {}
        self.entered = Ingested(queued=bool(let))

    def let_in(self, one: JudgedMessage, new: Accepted) -> Rejected | None:
        """Store the job of a message, unless it is known; return why it is refused, if it is."""
        if before := self._known.get(new.key.digits):
            return self._again(new, *before)
        told = self.refused.get(records.digest(one.user, one.body)) if self.refused else None
        if refused := admission.repeated(new, told):
            return refused
        if new.most:
            live = records.live(self._db, one.user, new.job.application)
            if refused := admission.too_many(new, one.user, live):
                return refused
        self._known[new.key.digits] = (self._add(one.user, new), new.key.body)
        return None

    def _again(self, new: Accepted, before: int, sha256: str) -> Rejected | None:
        if not before:
            return admission.forgotten(new)
        if sha256 != new.key.body:
            return admission.conflict(new, before)
        records.tell(self._db, before, self._now)
        self.entered.again += 1
        return None

    def _add(self, user: str, new: Accepted) -> int:
        group = (user, new.queue)
        waits = self._active.why_not(group, self._limits)
        if new.job.application == PILOT:
            # Whose turn it is depends on the pilots of all hubs.
            waits = pilots.WAITS
        if not waits:
            self._active.add(group)
            self.entered.queued = True
        self.entered.new += 1
        state = State.WAITING if waits else State.QUEUED
        spec = self._spec(new.spec)
        return records.accept(
            self._db, user, new, state, waits, self._now, spec, dialled=self._dialled
        )

    def _spec(self, spec: JobSpec) -> int:
        """Return the number of a definition; the jobs of a sender mostly share one."""
        body = text.dump(spec)
        found = self._specs.get(body)
        if found is None:
            found = self._specs[body] = jobs.intern(self._db, spec)
        return found


_log = logging.getLogger("pilotage.edge")
#: Seconds until messages are taken again after the store has failed.
_PAUSE_S = 2.0
_MISTAKE = "it was not processed because of a mistake in Pilotage; see the log of the agent"
#: Messages at once after which more are expected, and for how many seconds.
_CROWD = 50
_CROWDED_S = 0.5


class Ingest:
    """Takes jobs from one topic or more."""

    def __init__(
        self, bus: Bus, writer: Writer, registry: Registry, settings: Callable[[], Settings],
        now: Callable[[], float], poke: Callable[[], None],
    ) -> None:  # fmt: skip
        """Prepare; `run` starts it. `poke` is called when jobs are queued."""
        self._bus = bus
        self._writer = writer
        self._registry = registry
        self._settings = settings
        self._now = now
        self._poke = poke
        self._taking = True
        self._changed = anyio.Event()
        #: Until when more are expected to come.
        self._crowded = 0.0

    @property
    def crowded(self) -> bool:
        """Whether many messages come in just now."""
        return time.monotonic() < self._crowded

    @property
    def taking(self) -> bool:
        """Whether jobs are taken; else they stay at the broker."""
        return self._taking

    @taking.setter
    def taking(self, wanted: bool) -> None:
        if wanted != self._taking:
            self._taking = wanted
            self._changed.set()
            self._changed = anyio.Event()

    async def run(self, topic: str, unnamed: str) -> None:
        """Take messages of a topic until cancelled; `unnamed` sent those without a name."""
        trouble = ""
        while True:
            try:
                if self._taking:
                    await self._while_taking(topic, unnamed)
                else:
                    await self._changed.wait()
                trouble = ""
            except errors.Unavailable as error:
                if str(error) != trouble:
                    trouble = str(error)
                    _log.warning("jobs by %s: %s", topic, error)
                await anyio.sleep(_PAUSE_S)

    async def _while_taking(self, topic: str, unnamed: str) -> None:
        """Take messages until none are to be taken any more."""
        ahead = self._settings().bus.ahead
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._until_changed, tasks.cancel_scope)
                async with self._bus.subscribe(topic, ahead=ahead) as incoming:
                    await batches.take(incoming, functools.partial(self._some, unnamed=unnamed))
        except* errors.Unavailable as group:
            raise _first(group) from None

    async def _until_changed(self, scope: anyio.CancelScope) -> None:
        while self._taking:
            await self._changed.wait()
        scope.cancel()

    async def _some(self, messages: Sequence[Message], unnamed: str) -> None:
        """Store messages, and acknowledge them."""
        crash.point("edge.delivered")
        if len(messages) >= _CROWD:
            self._crowded = time.monotonic() + _CROWDED_S
        try:
            entered = await self._enter(messages, unnamed)
        except errors.StoreUnavailable as error:
            _log.error("%s; %d messages are returned to the broker", error, len(messages))
            await anyio.sleep(_PAUSE_S)
            await self._bus.ack(*messages, done=False)
            return
        except Exception:  # noqa: BLE001 - an unexpected error fails one message only
            if len(messages) == 1:
                _log.exception("a message by %s: a mistake in Pilotage", messages[0].topic)
                await self._odd(messages[0], unnamed)
                return
            for one in messages:
                await self._some([one], unnamed)
            return
        crash.point("edge.committed")
        await self._bus.ack(*messages)
        crash.point("edge.acked")
        self._tell(entered)

    async def _enter(self, messages: Sequence[Message], unnamed: str) -> Ingested:
        settings = self._settings()
        arrivals = await anyio.to_thread.run_sync(self._judge, messages, unnamed, settings)
        crash.point("edge.judged")
        step = functools.partial(
            store_messages, arrivals=arrivals, settings=settings, now=self._now()
        )
        return await self._writer.run(step)

    async def _odd(self, one: Message, unnamed: str) -> None:
        """Return a message that caused an unexpected error for one retry, then refuse it."""
        if not one.again:
            await anyio.sleep(_PAUSE_S)
            await self._bus.ack(one, done=False)
            return
        why = Rejected(kind="infrastructure", code="mistake", reason=_MISTAKE)
        arrival = JudgedMessage(one.user or unnamed, one.topic, one.body, why, one.again)
        settings, now = self._settings(), self._now()
        await self._writer.run(lambda db: store_messages(db, [arrival], settings, now))
        await self._bus.ack(one)

    def _judge(
        self, messages: Sequence[Message], unnamed: str, settings: Settings
    ) -> list[JudgedMessage]:
        return [self._arrival(one, one.user or unnamed, settings) for one in messages]

    def _arrival(self, one: Message, user: str, settings: Settings) -> JudgedMessage:
        verdict = admission.judge(one.body, user, self._registry.find, settings)
        return JudgedMessage(user, one.topic, one.body, verdict, one.again)

    def _tell(self, entered: Ingested) -> None:
        if entered.refused:
            _log.warning("messages refused: %d; see `pilotage agent status`", entered.refused)
        if entered.queued:
            self._poke()


def _first(group: BaseExceptionGroup[errors.Unavailable]) -> errors.Unavailable:
    """Return one error of those that came together."""
    one = group.exceptions[0]
    return _first(one) if isinstance(one, BaseExceptionGroup) else one
