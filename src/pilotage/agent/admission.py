"""Admission of messages from the bus: each becomes a job, or is refused with a reason.

The sender is the user that the broker has verified, or the one that the site names for a topic;
what a message says of itself does not count. Messages that arrive together are stored in one
transaction. Refused messages are kept once and answered.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import time
from collections.abc import Callable, Sequence

import anyio
import msgspec
from msgspec import UNSET

from pilotage.agent import job_limits, outbox, pilots, records
from pilotage.agent.app import command, hosts, policy
from pilotage.agent.app.model import Application
from pilotage.agent.model import Accepted, JudgedMessage, RefusedMessage, Rejected, reply_to
from pilotage.agent.registry import Registry
from pilotage.agent.settings import Settings
from pilotage.base import crash, errors, text
from pilotage.bus import balsam, port, wire
from pilotage.bus import model as bus_model
from pilotage.bus.model import BUSY, LIMITS, NO_APPLICATION, Chain, Job
from pilotage.bus.port import Bus, Message, matches
from pilotage.edge.order import PILOT
from pilotage.job import records as jobs
from pilotage.job.model import Allocation, JobSpec, Resources, Shape, State
from pilotage.store import Db, Writer

Find = Callable[[str], Application]
_ANOTHER_KEY = "; a key is decided on once: a higher `attempt` asks again"
#: Fields of an unreadable message by which its sender recognises it.
_SIGNS = ("application", "name", "key", "reply", "job_id", "argo_job_id")


def judge(body: bytes, user: str, find: Find, settings: Settings) -> Accepted | Rejected:
    """Decide on the body of a message from a user that the broker has verified."""
    try:
        understood = balsam.read_message(body, settings.site)
    except errors.BadMessage as error:
        stub = guess(body, settings.site)
        return Rejected(kind="message", code="unreadable", reason=_said(error), job=stub)
    job = understood.message
    if not isinstance(job, Job):
        return _no_job(job, settings.site)
    reason = _place(job, settings)
    if reason:
        return Rejected(kind="message", code="wrong_site", reason=reason, job=job)
    if not user:
        reason = "its sender is unknown: the broker has verified no name"
        return Rejected(kind="policy", code="no_user", reason=reason, job=job)
    if reason := posing(user, settings):
        return Rejected(kind="policy", code="no_user", reason=reason, job=job)
    try:
        app = find(job.application)
    except errors.NotFound:
        # Names of applications are disclosed only to users who may use them.
        reason = f"there is no application `{job.application}` here"
        return Rejected(kind="policy", code=NO_APPLICATION, reason=reason, job=job)
    except errors.ConfigError:
        reason = f"the application `{job.application}` cannot be used: its file has a mistake"
        return Rejected(kind="policy", code=NO_APPLICATION, reason=reason, job=job)
    return _settled(job, user, app, settings, understood.notes)


def _settled(
    job: Job, user: str, app: Application, settings: Settings, notes: tuple[str, ...]
) -> Accepted | Rejected:
    settled = policy.settle(app, job, user)
    verdict = policy.judge(app, settled, user)
    others = (
        *_batch(settled, app, settings), *_carried(app, settled, settings),
        *pilots.objections(app, settled, settings),
    )  # fmt: skip
    reasons = (*verdict.reasons, *others)
    if reasons:
        code = LIMITS if verdict.limits and not others else "denied"
        return Rejected(kind="policy", code=code, reason="; ".join(reasons), job=job)
    return Accepted(
        job=settled,
        key=wire.message_key(job, user),
        spec=spec_of(settled, app, settings.here),
        queue=settled.queue or settings.batch.defaults.queue,
        most=pilots.most(app, user),
        notes=notes,
    )


def posing(user: str, settings: Settings) -> str:
    """Return why a user of a broker is refused: the name is that of a hub; empty if it is not."""
    if settings.carrier or user not in settings.hub_users:
        return ""
    return f"`{user}` is a hub that this agent dials, and no user of the broker"


def too_many(new: Accepted, user: str, live: int) -> Rejected | None:
    """Refuse a job of a user who has too many of this application already."""
    if not new.most or live < new.most:
        return None
    reason = f"the user `{user}` has {live} jobs; the limit is {new.most}"
    return Rejected(kind="policy", code=BUSY, reason=reason, job=new.job)


def conflict(new: Accepted, before: int) -> Rejected:
    """Refuse another job under a key that is used already."""
    reason = f"its key is that of job {before}, which asked for something else"
    return Rejected(kind="message", code="conflict", reason=reason, job=new.job)


def forgotten(new: Accepted) -> Rejected:
    """Refuse a job that was here so long ago that nothing is known of it any more."""
    reason = "a job with its key has ended and was removed"
    return Rejected(kind="message", code="forgotten", reason=reason, job=new.job)


def repeated(new: Accepted, before: tuple[str, str] | None) -> Rejected | None:
    """Refuse a job again whose message with a key was refused: its sender may have lost the answer.

    `before` are code and reason of that refusal.
    """
    if before is None or not new.job.key:
        return None
    code, reason = before
    said = reason.removesuffix(_ANOTHER_KEY) + _ANOTHER_KEY
    return Rejected(kind="policy", code=code, reason=said, job=new.job)


def spec_of(job: Job, app: Application, site: str) -> JobSpec:
    """Write the definition of a job; its arguments are made when its data is there."""
    needs = job.resources
    return JobSpec(
        recipe=command.recipe([app.executable or app.takes]),
        name=command.literal(job.application),
        resources=Resources(
            cpus=needs.cpus, memory=needs.memory or None, gpus=needs.gpus, disk=needs.disk or None,
            time=float(job.wall_time) or None,
        ),
        image=app.container,
        site=site,
        via="batch",
        allocation=Allocation(
            nodes=job.nodes, tasks=job.tasks, queue=job.queue, account=job.project,
            extra=job.options, launcher="none" if app.launcher else "",
            shape=Shape(
                nodes_least=job.shape.nodes_least, time_least=float(job.shape.time_least),
                work=float(job.shape.work),
            ),
        ),
    )  # fmt: skip


def may_reply(topic: str, settings: Settings) -> bool:
    """Return whether status messages may be sent to a topic."""
    known = (settings.status_topic, settings.bus.balsam_status)
    return topic in known or any(matches(one, topic) for one in settings.bus.replies)


def guess(body: bytes, site: str) -> Job | None:
    """Return what can be read of an invalid message, so that its sender recognises the answer."""
    try:
        found = wire.load(body)
    except errors.BadMessage:
        return None
    ours = "v" in found or "kind" in found
    if found.get("kind", "job") != "job":
        return None
    made = Job(site=site, application="unknown", speech="pilotage" if ours else "balsam")
    plain = {"site": made.site, "application": made.application, "speech": made.speech}
    for name in _SIGNS:
        if name in found:
            try:
                made = wire.convert(plain | {name: found[name]}, Job)
            except errors.BadMessage:
                continue
            plain[name] = found[name]
    return made


def _no_job(message: bus_model.Message, site: str) -> Rejected:
    if isinstance(message, Chain):
        reason = "send a chain of jobs to a hub, which sends each site its jobs"
        stub = Job(
            site=site, application="unknown", key=message.key, name=message.name,
            reply=message.reply, speech=message.speech,
        )  # fmt: skip
        return Rejected(kind="message", code="wrong_kind", reason=reason, job=stub)
    kind = type(message).__name__.lower()
    reason = f"it is of the kind `{kind}`, and this topic takes jobs"
    return Rejected(kind="message", code="wrong_kind", reason=reason)


def _place(job: Job, settings: Settings) -> str:
    """Return why a job is not for this site; empty if it is."""
    if job.site != settings.site:
        return f"it is for the site `{job.site}`, and this is `{settings.site}`"
    return ""


def _batch(job: Job, app: Application, settings: Settings) -> list[str]:
    """Return what the site does not allow, whatever the application does."""
    if settings.batch.host and app.takes != PILOT:
        return ["the agent reaches its batch system by SSH, and starts pilots there alone"]
    allowed = settings.batch.allow
    found = [
        f"`options` has `{one}`, which this site does not allow"
        for one in job.options
        if one not in allowed and one.partition("=")[0] not in allowed
    ]
    if job.reply and not may_reply(job.reply, settings):
        found.append(f"`reply` is `{job.reply}`, where this site sends nothing")
    return found


def _carried(app: Application, job: Job, settings: Settings) -> list[str]:
    """Return why a job may not carry its inputs."""
    if hosts.carries(app.staging, dials=bool(settings.hub.url)):
        return []
    return [
        f"`inputs[{at}].content` is given, and the application takes data by URL only"
        for at, one in enumerate(job.inputs)
        if one.content is not UNSET
    ]


def _said(error: errors.BadMessage) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


#: Bytes that are kept of a refused message.
_MOST_KEPT = 4096
_LONGEST = 10_000


def refuse(db: Db, one: JudgedMessage, why: Rejected, settings: Settings, now: float) -> None:
    """Store a refused message, and report it to the site and to its sender."""
    digest = records.digest(one.user, one.body)
    # A user of the broker who has the name of a hub is answered by the broker.
    to = "" if posing(one.user, settings) else one.user
    reason = why.reason[:_LONGEST]
    kept = pilots.secretless(one.body)[:_MOST_KEPT]
    buried = RefusedMessage(
        digest, now, one.user, one.topic, why.code, reason, len(one.body), kept, 1
    )
    count = records.store_refused(db, buried)
    if count == 1:
        told = _refusal(one, why, settings, now)
        records.send(db, to, settings.refused_topic, wire.encode(told), now)
    # A new message is answered again; a repeated delivery of the same one is not.
    if why.job is not None and (count == 1 or not one.again):
        _answer(db, to, why, settings, now)


def _answer(db: Db, user: str, why: Rejected, settings: Settings, now: float) -> None:
    job = why.job
    if job is None:
        return
    known = reply_to(job)
    if known.reply and not may_reply(known.reply, settings):
        known = reply_to(
            bus_model.Job(site=job.site, application=job.application, speech=job.speech)
        )
    status = bus_model.Status(
        site=settings.site, job=0, key=job.key, job_id=job.job_id, argo_job_id=job.argo_job_id,
        seq=1, state="rejected", step="accept", reason=_reason(why), time=now,
    )  # fmt: skip
    body = outbox.encoded(status, job.speech, lambda: job, now)
    records.send(db, user, outbox.status_topic(known, settings), body, now)


def _refusal(
    one: JudgedMessage, why: Rejected, settings: Settings, now: float
) -> bus_model.Refusal:
    job = why.job
    return bus_model.Refusal(
        site=settings.site, time=now, user=one.user, topic=one.topic, key=job.key if job else "",
        job_id=job.job_id if job else 0, argo_job_id=job.argo_job_id if job else 0,
        reason=_reason(why), sha256=hashlib.sha256(one.body).hexdigest(), size=len(one.body),
    )  # fmt: skip


def _reason(why: Rejected) -> bus_model.Reason:
    return bus_model.Reason(kind=why.kind, code=why.code, text=why.reason[:_LONGEST])


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
        if refused := repeated(new, told):
            return refused
        if new.most:
            live = records.live(self._db, one.user, new.job.application)
            if refused := too_many(new, one.user, live):
                return refused
        self._known[new.key.digits] = (self._add(one.user, new), new.key.body)
        return None

    def _again(self, new: Accepted, before: int, sha256: str) -> Rejected | None:
        if not before:
            return forgotten(new)
        if sha256 != new.key.body:
            return conflict(new, before)
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
                    await port.take_batches(
                        incoming, functools.partial(self._some, unnamed=unnamed)
                    )
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
        verdict = judge(one.body, user, self._registry.find, settings)
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
