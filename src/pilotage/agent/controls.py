"""Control messages: cancel, hold, release, retry and query jobs, and drain the site.

A control is executed in one transaction with its answer. Users control their own jobs,
administrators of the site all; jobs of other users are reported as unknown.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

import anyio
import msgspec

from pilotage.agent import ingest, job_limits, records
from pilotage.agent.ingest import refuse
from pilotage.agent.model import JudgedMessage, Rejected
from pilotage.agent.settings import Settings
from pilotage.base import crash, errors
from pilotage.batch import records as sites
from pilotage.bus import wire
from pilotage.bus.model import Answer, Control, Follow, FollowedJob, Result
from pilotage.bus.port import Bus, Message
from pilotage.job import machine, moves
from pilotage.job import records as jobs
from pilotage.job.model import Job, State
from pilotage.store import Db, Writer

_LONGEST = 400
#: Results that fit into one answer, whatever they say.
_MOST_RESULTS = 1000


class ControlResult(msgspec.Struct, frozen=True):
    """The result of a control."""

    #: Answers to a request.
    answers: tuple[bytes, ...] = ()
    #: Whether anything has changed.
    changed: bool = False
    #: Jobs whose streams are to be sent while they run, by number, and for how many seconds.
    follow: Mapping[int, FollowedJob] = {}
    seconds: float = 0.0


def execute(db: Db, message: Message, settings: Settings, now: float) -> ControlResult:
    """Execute a control if its sender may, and store the answer."""
    user = message.user
    try:
        control = wire.decode(message.body)
        if not isinstance(control, Control | Follow):
            raise errors.BadMessage("it is not a control message, and this topic takes only those")
        _check_sender(control, user, settings)
        if isinstance(control, Control):
            _check(control, user, settings)
    except (errors.BadMessage, errors.Denied) as error:
        return _refused(db, message, error, settings, now)
    if isinstance(control, Follow):
        return _follow(db, control, user, boss=user in settings.admins)
    once = control.verb in ("retry", "resend")
    digest = records.digest(f"{user}\n{message.key}", message.body)
    if once and message.again and (before := records.answered(db, digest)):
        # It was executed, but not acknowledged; executing it again would add an attempt.
        return ControlResult((before,))
    answer = _do(db, control, user, settings, now)
    parts = tuple(wire.encode(part) for part in _parts(answer))
    if once:
        records.answer(db, digest, parts[0], now)
    if control.reply:
        for part in parts:
            records.send(db, user, control.reply, part, now)
    return ControlResult(parts, changed=control.verb != "query")


def _follow(db: Db, asked: Follow, user: str, *, boss: bool) -> ControlResult:
    """Follow the output of jobs; unknown jobs are left out."""
    found = {_keyed(db, one.key, user, boss=boss): one for one in asked.jobs if one.key}
    found.pop(0, None)
    for number in found:
        records.follow(db, number)
    return ControlResult(follow=found, seconds=asked.seconds)


def _keyed(db: Db, key: str, user: str, *, boss: bool) -> int:
    """Return the number of a job by its key: the user's own first, any for an administrator."""
    found = records.by_token(db, key, user)
    if found is None and boss:
        found = records.by_token(db, key, "")
    return found[0] if found else 0


def _check_sender(control: Control | Follow, user: str, settings: Settings) -> None:
    if control.site != settings.site:
        message = f"it is for the site `{control.site}`, and this is `{settings.site}`"
        raise errors.BadMessage(message, field="site")
    if not user:
        raise errors.Denied("its sender is unknown: the broker has verified no name")
    if reason := ingest.posing(user, settings):
        raise errors.Denied(reason)


def _check(control: Control, user: str, settings: Settings) -> None:
    if control.verb in ("drain", "resume") and user not in settings.admins:
        raise errors.Denied(f"the user `{user}` may not {control.verb} the site")
    if control.reply and not ingest.may_reply(control.reply, settings):
        raise errors.Denied(f"`reply` is `{control.reply}`, where this site sends nothing")


def _refused(
    db: Db, message: Message, error: errors.PilotageError, settings: Settings, now: float
) -> ControlResult:
    denied = isinstance(error, errors.Denied)
    why = Rejected(
        kind="policy" if denied else "message",
        code="denied" if denied else "unreadable",
        reason=str(error),
    )
    arrival = JudgedMessage(message.user, message.topic, message.body, why, message.again)
    refuse(db, arrival, why, settings, now)
    answer = Answer(site=settings.site, time=now, ok=False, text=str(error)[:_LONGEST])
    return ControlResult((wire.encode(answer),))


def _do(db: Db, control: Control, user: str, settings: Settings, now: float) -> Answer:
    if control.verb in ("drain", "resume"):
        asked = "drain" if control.verb == "drain" else ""
        sites.ask(db, settings.here, asked, by=user, why=control.reason, now=now)
    draining = bool(db.value("site_asked", name=settings.here))
    answer = Answer(site=settings.site, time=now, verb=control.verb, draining=draining)
    boss = user in settings.admins
    if control.verb == "query" and not (control.jobs or control.keys):
        return msgspec.structs.replace(answer, counts=records.counts(db, "" if boss else user))
    asker = _Asker(db, control, user, boss=boss, now=now)
    results = tuple(asker.results())
    if control.verb in ("release", "retry"):
        job_limits.settle(db, settings.limits, now)
    return msgspec.structs.replace(answer, results=results)


class _Asker:
    """Applies one control to each of its jobs."""

    def __init__(self, db: Db, control: Control, user: str, *, boss: bool, now: float) -> None:
        self._db = db
        self._control = control
        self._user = user
        self._boss = boss
        self._now = now

    def results(self) -> Iterator[Result]:
        for number in self._control.jobs:
            yield self._one(self._own(number), Result(job=number))
        for key in self._control.keys:
            number = _keyed(self._db, key, self._user, boss=self._boss)
            yield self._one(number, Result(key=key))

    def _own(self, number: int) -> int:
        """Return the number of a job if the user may know of it; else 0."""
        owner = records.owner_of(self._db, number)
        return number if owner is not None and (self._boss or owner == self._user) else 0

    def _one(self, number: int, named: Result) -> Result:
        if not number:
            text = "there is no such job of yours"
            return msgspec.structs.replace(named, job=0, ok=False, text=text)
        job = jobs.get(self._db, number)
        try:
            self._change(job)
        except errors.IllegalTransition as error:
            return self._result(number, named, str(error))
        return self._result(number, named)

    def _result(self, number: int, named: Result, error: str = "") -> Result:
        now, facts = jobs.get(self._db, number), records.facts(self._db, number)
        step = {"step": facts.step}
        return msgspec.structs.replace(
            named, job=number, ok=not error, state=now.state.value, attempt=now.attempt,
            text=(error or now.reason)[:_LONGEST], **step,
        )  # fmt: skip

    def _change(self, job: Job) -> None:
        """Change a job, unless it is in the wanted state already."""
        why = f" by {self._user}" + (f": {self._control.reason}" if self._control.reason else "")
        match self._control.verb:
            case "cancel" if job.state is not State.CANCELLED:
                moves.cancel(self._db, job, now=self._now, reason=f"cancelled{why}")
            case "hold" if job.state is not State.HELD:
                moves.hold(self._db, job, now=self._now, reason=f"held{why}")
            case "release" if job.state is State.HELD or job.state in machine.FINAL:
                moves.release(self._db, job, now=self._now)
            case "retry" if job.state in machine.FINAL:
                moves.again(self._db, job, now=self._now)
            case "resend":
                self._resend(job)
            case _:
                pass

    def _resend(self, job: Job) -> None:
        if job.state is not State.DONE:
            message = f"job {job.id} is {job.state}: only outputs of a done job can be sent again"
            raise errors.IllegalTransition(message)
        if not records.ask_again(self._db, job.id, self._now):
            raise errors.IllegalTransition(f"job {job.id} has no outputs to send again")


def _parts(answer: Answer) -> Iterator[Answer]:
    """Split an answer that would be too long."""
    results: Sequence[Result] = answer.results
    starts = range(0, max(1, len(results)), _MOST_RESULTS)
    for at in starts:
        more = at + _MOST_RESULTS < len(results)
        some = tuple(results[at : at + _MOST_RESULTS])
        yield msgspec.structs.replace(answer, results=some, more=more)


_log = logging.getLogger("pilotage.edge")
_PAUSE_S = 2.0
_AHEAD = 20


class Controls:
    """Receives controls of the site."""

    def __init__(
        self, bus: Bus, writer: Writer, settings: Callable[[], Settings],
        now: Callable[[], float], poke: Callable[[], None],
        follow: Callable[[Mapping[int, FollowedJob], float], None],
    ) -> None:  # fmt: skip
        """Prepare; `poke` is called when something was changed.

        `follow` is given jobs whose streams are to be sent, and for how long.
        """
        self._bus = bus
        self._writer = writer
        self._settings = settings
        self._now = now
        self._poke = poke
        self._follow = follow

    async def run(self) -> None:
        """Execute controls until cancelled."""
        trouble = ""
        while True:
            try:
                topic = self._settings().control_topic
                async with self._bus.subscribe(topic, ahead=_AHEAD) as incoming:
                    async for message in incoming:
                        await self._one(message)
                        trouble = ""
            except errors.Unavailable as error:
                if str(error) != trouble:
                    trouble = str(error)
                    _log.warning("controls: %s", error)
            await anyio.sleep(_PAUSE_S)

    async def _one(self, message: Message) -> None:
        plain = msgspec.structs.replace(message, reply=_nobody)
        step = functools.partial(execute, message=plain, settings=self._settings(), now=self._now())
        obeyed: ControlResult = await self._writer.run(step)
        crash.point("edge.obeyed")
        await self._bus.ack(message)
        if obeyed.changed:
            self._poke()
        if obeyed.follow:
            self._follow(obeyed.follow, obeyed.seconds)
        for body in obeyed.answers:
            await message.reply(body)


async def _nobody(_: bytes) -> None:
    """Discard an answer: the store must not wait for the bus."""
