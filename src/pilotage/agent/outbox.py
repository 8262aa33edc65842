"""Status messages of jobs: their content, and an outbox that delivers them in order.

Output of running jobs is sent to a hub that follows it, in pieces at a bounded rate. Nothing of it
is stored here: each request of a hub says how much of a stream it has, so that a lost piece is
requested again.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import msgspec
from msgspec import UNSET, UnsetType

from pilotage.agent import records
from pilotage.agent.model import LiveOutput, OutboxEntry, ReplyTo, StatusFacts
from pilotage.agent.records import Receivers
from pilotage.agent.settings import Settings
from pilotage.base import crash, errors, paths
from pilotage.bus import balsam, wire
from pilotage.bus.fields import MOST_FOLLOWED, MOST_LOG, MOST_RESULT_TEXT, Speech
from pilotage.bus.model import FollowedJob, Job, Log, Reason, Status
from pilotage.bus.port import Bus
from pilotage.job import logs
from pilotage.job.logs import Name
from pilotage.job.outcome import Cause
from pilotage.store import Db, Writer

_LONGEST = 10_000
_OVER = frozenset({"done", "failed", "cancelled"})
#: Class and code of a failure by step, unless a better cause is known.
_STEPS: dict[str, tuple[str, str]] = {
    "accept": ("policy", "rejected"),
    "stage_in": ("staging", "stage_in"),
    "stage_out": ("staging", "stage_out"),
    "preprocess": ("application", "preprocess"),
    "postprocess": ("application", "postprocess"),
    "submit": ("infrastructure", "submit"),
}
#: Class and code by the cause of the end of an attempt.
_CAUSES: dict[Cause, tuple[str, str]] = {
    Cause.EXIT: ("application", "exit"),
    Cause.SIGNAL: ("application", "signal"),
    Cause.TIMEOUT: ("application", "timeout"),
    Cause.MEMORY: ("application", "memory"),
    Cause.DISK: ("application", "disk"),
    Cause.OUTPUT: ("application", "output"),
    Cause.STEP: ("application", "step"),
    Cause.INPUT: ("staging", "input"),
    Cause.NOT_STARTED: ("infrastructure", "not_started"),
    Cause.STOPPED: ("infrastructure", "stopped"),
    Cause.CANCELLED: ("person", "cancelled"),
    Cause.NODE: ("infrastructure", "node_lost"),
    Cause.PREEMPTED: ("infrastructure", "preempted"),
    Cause.KILLED: ("infrastructure", "killed"),
    Cause.LOST: ("infrastructure", "lost"),
}


class StreamEnd(NamedTuple):
    """The end of a stream, in base64."""

    text: str = ""
    #: Where it begins, in bytes; only for hubs that understand the field.
    at: int | UnsetType = UNSET


_NOTHING = (StreamEnd(), StreamEnd())


def status_message(
    entry: OutboxEntry,
    facts: StatusFacts,
    site: str,
    streams: tuple[StreamEnd, StreamEnd] = _NOTHING,
) -> Status:
    """Return the status of a job; `streams` are the ends of its standard output and error."""
    told: dict[str, Any] = {"state": entry.state, "step": entry.step}
    return Status(
        site=site, job=entry.job, key=facts.back.key, job_id=facts.back.job_id,
        argo_job_id=facts.back.argo_job_id, attempt=entry.attempt, seq=entry.seq,
        reason=reason(entry, facts), scheduler_id=facts.scheduler_id[:200], time=entry.time,
        left=facts.left if entry.state == "done" else (),
        read=facts.read if entry.state in _OVER else 0,
        stdout=streams[0].text, stdout_at=streams[0].at,
        stderr=streams[1].text, stderr_at=streams[1].at,
        result=facts.result if entry.state in _OVER and not _too_long(facts) else "",
        **told,
    )  # fmt: skip


def _too_long(facts: StatusFacts) -> bool:
    """Return whether the result of a function is too long for a message."""
    return len(facts.result.encode()) > MOST_RESULT_TEXT


def stream_ends(facts: StatusFacts) -> tuple[StreamEnd, StreamEnd]:
    """Read the ends of both streams of an ended job."""
    out, err = (_tail(f"{facts.folder}/{name}") for name in ("stdout", "stderr"))
    # A hub that follows no logs does not know the fields that say where ends begin.
    return (out, err) if facts.followed else (StreamEnd(out.text), StreamEnd(err.text))


def _tail(path: str) -> StreamEnd:
    """Read the end of a file; none if it cannot be read."""
    try:
        with paths.regular(path) as file:
            at = max(0, os.fstat(file).st_size - MOST_LOG)
            return StreamEnd(base64.b64encode(os.pread(file, MOST_LOG, at)).decode(), at)
    except (OSError, errors.Denied):
        return StreamEnd()


def encoded(said: Status, words: Speech, job: Callable[[], Job], created: float) -> bytes:
    """Encode a status in the format of its receiver; the whole job is only needed for Balsam."""
    match words:
        case "balsam":
            return balsam.balsam_status(job(), said, created)
        case "argo":
            return balsam.argo_status(said)
        case "pilotage":
            return wire.encode(said)


def status_topic(back: ReplyTo, settings: Settings) -> str:
    """Return where status messages of a job go."""
    if back.reply:
        return back.reply
    return settings.bus.balsam_status if back.speech == "balsam" else settings.status_topic


def reason(entry: OutboxEntry, facts: StatusFacts) -> Reason:
    """Return the reason of the state of a job, with its class and code."""
    text = entry.reason
    if entry.seq == 1 and facts.notes:
        text = "; ".join(part for part in (text, *facts.notes) if part)
    if entry.state in _OVER and _too_long(facts):
        said = f"its result is too long to be sent: {len(facts.result)} characters"
        text = "; ".join(part for part in (text, said) if part)
    kind, code = (entry.kind, entry.code) if entry.kind else _blame(entry, facts)
    return msgspec.convert({"class": kind, "code": code, "text": text[:_LONGEST]}, Reason)


def _blame(entry: OutboxEntry, facts: StatusFacts) -> tuple[str, str]:
    match entry.state:
        case "waiting":
            return "policy", "limit"
        case "held":
            return "person", "held"
        case "cancelled":
            return "person", "cancelled"
        case "rejected":
            return "policy", "rejected"
        case "failed":
            return _STEPS.get(entry.step) or _end(facts)
        case "queued" if entry.attempt and facts.attempt in ("failed", "lost"):
            return _end(facts)
        case "staging_out" if facts.attempt == "failed":
            return _end(facts)
        case _:
            return "", ""


def _end(facts: StatusFacts) -> tuple[str, str]:
    """Return class and code of the end of an attempt; one of an older store by its exit code."""
    if facts.cause:
        return _CAUSES[facts.cause]
    if facts.attempt == "lost":
        return "infrastructure", "lost"
    if facts.signal:
        return "application", "signal"
    if facts.exit:
        return "application", "exit"
    # It ended well and yet failed: a declared output is missing.
    return ("application", "output") if facts.exit == 0 else ("infrastructure", "lost")


_log = logging.getLogger("pilotage.edge")
#: Seconds until the next check without a notification.
_LOOK_S = 1.0
#: Maximal delay of statuses while many jobs arrive, and the time between checks, in seconds.
_CROWDED_S = 2.0
_GLANCE_S = 0.05
#: Seconds until a failed bus is tried again.
_PAUSE_S = 1.0
#: Seconds until a denied topic is tried again, and the number of denied topics remembered.
_DENIED_S = 60.0
_MOST_DENIED = 10_000
#: Messages that are read together, and those on the way to the bus at once.
_MOST = 500
_AT_ONCE = 100
#: Beyond this number of waiting messages, outdated statuses are dropped; ends are not.
_TOO_MANY = 10_000


class Outbox:
    """Sends stored status messages."""

    def __init__(
        self, bus: Bus, writer: Writer, open_reader: Callable[[], Db],
        settings: Callable[[], Settings], now: Callable[[], float],
        crowded: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """Prepare; `run` starts it. News waits a little while it is `crowded`."""
        self._bus = bus
        self._writer = writer
        self._open_reader = open_reader
        self._settings = settings
        self._now = now
        self._crowded = crowded
        #: How many messages wait.
        self.depth = 0
        self._counted = 0.0
        self._after = 0
        #: Up to which message, and until when at least, others come before one that failed.
        self._last, self._due = 0, 0.0
        #: Jobs of which a message could not be sent: later ones must wait for it.
        self._stuck: set[int] = set()
        #: Denied topics, and when each is tried again.
        self._denied: dict[str, float] = {}
        #: Messages that failed because of a mistake in Pilotage.
        self._odd: set[int] = set()
        self._trouble = ""
        self._new = asyncio.Event()

    async def run(self) -> None:
        """Send until cancelled."""
        db, loop = self._open_reader(), asyncio.get_running_loop()
        wake = functools.partial(loop.call_soon_threadsafe, self._new.set)
        with contextlib.closing(db), self._writer.telling(wake):
            while True:
                self._new.clear()
                if self._after >= self._last and anyio.current_time() >= self._due:
                    # Failed messages are tried again, however many others wait.
                    self._after, self._stuck = 0, set()
                words = records.unsent(db, self._after, _MOST, self._receivers())
                if words:
                    await self._give_way()
                    await self._round(db, words)
                elif self._after:
                    # Only failed messages are left: pause.
                    self._last = self._after
                    await anyio.sleep_until(self._due)
                else:
                    self._all_sent()
                    with anyio.move_on_after(_LOOK_S):
                        await self._new.wait()

    def _receivers(self) -> Receivers:
        """Return whose messages go by this carrier."""
        settings = self._settings()
        if settings.carrier:
            return Receivers(frozenset({settings.hub.user}), among=True)
        return Receivers(settings.hub_users)

    async def _give_way(self) -> None:
        """Delay statuses a little while many jobs arrive, which are stored first."""
        with anyio.move_on_after(_CROWDED_S):
            while self._crowded():  # noqa: ASYNC110 - there is no event
                await anyio.sleep(_GLANCE_S)

    def _all_sent(self) -> None:
        self.depth = 0
        if self._trouble:
            self._trouble = ""
            _log.info("status messages are sent again")

    async def _round(self, db: Db, words: Sequence[OutboxEntry]) -> None:
        """Send some messages, those on different jobs at once."""
        await self._count(db, len(words))
        by_job: dict[tuple[int, int], list[OutboxEntry]] = {}
        for entry in words:
            # Messages that are not about a job have no order.
            by_job.setdefault((entry.job, 0 if entry.job else entry.id), []).append(entry)
        sent: list[int] = []
        room = anyio.Semaphore(_AT_ONCE)
        async with anyio.create_task_group() as tasks:
            for some in by_job.values():
                if some[0].job not in self._stuck:
                    tasks.start_soon(self._story, db, some, sent, room)
        crash.point("edge.published")
        if sent:
            await self._writer.run(lambda db: records.sent(db, sent))
            crash.point("edge.sent")
        if not self._after and len(sent) < len(words):
            newest = records.newest(db, self._receivers())
            self._last, self._due = newest, anyio.current_time() + _PAUSE_S
            self._after = words[-1].id
        elif self._after:
            self._after = words[-1].id

    async def _story(
        self, db: Db, words: Sequence[OutboxEntry], sent: list[int], room: anyio.Semaphore
    ) -> None:
        """Send the messages on one job, one after the other; the first that fails is the last."""
        for entry in words:
            async with room:
                try:
                    await self._send(db, entry)
                except errors.PilotageError as error:
                    self._complain(error)
                    self._leave(entry)
                    return
                except Exception:  # noqa: BLE001 - one that cannot be said does not silence the others
                    if entry.id not in self._odd:
                        self._odd.add(entry.id)
                        _log.exception("message %d: this is a mistake in Pilotage", entry.id)
                    self._leave(entry)
                    return
            sent.append(entry.id)

    def _leave(self, entry: OutboxEntry) -> None:
        """Keep later messages on a job behind one that failed."""
        if entry.job:
            self._stuck.add(entry.job)

    async def _send(self, db: Db, entry: OutboxEntry) -> None:
        settings = self._settings()
        if entry.body:
            await self.publish(entry.topic, entry.body.encode())
            return
        facts = records.status_facts(db, entry.job, entry.attempt)
        if facts is None:
            return  # the job was forgotten, and its statuses with it
        streams = _NOTHING
        if entry.state in _OVER and facts.folder:
            # Files are read in a thread, which most messages must not wait for.
            streams = await anyio.to_thread.run_sync(stream_ends, facts)
        said = status_message(entry, facts, settings.site, streams)
        body = encoded(
            said, facts.back.speech, lambda: records.message(db, entry.job), facts.created
        )
        key = f"{settings.site}:{entry.job}:{entry.seq}"
        await self.publish(status_topic(facts.back, settings), body, key)

    async def publish(self, topic: str, body: bytes, key: str = "") -> None:
        """Send to a topic, or to the site's own while the broker denies it.

        Each denied attempt closes the connection, and fails all messages on the way.
        """
        own = self._settings().status_topic
        for where in dict.fromkeys((topic, own)):
            if anyio.current_time() < self._denied.get(where, 0.0):
                continue
            try:
                await self._bus.publish(where, body, key)
            except errors.Denied as error:
                self._complain(error)
                if len(self._denied) >= _MOST_DENIED:
                    self._denied.clear()
                self._denied[where] = anyio.current_time() + _DENIED_S
            else:
                return
        raise errors.Denied(f"the broker does not let us send to {topic!r} nor to {own!r}")

    async def _count(self, db: Db, seen: int) -> None:
        """Update the number of waiting messages; not each time, since counting is slow."""
        if seen < _MOST and not self._after:
            self.depth = seen
            return
        if self._now() - self._counted < 1.0:
            return
        self.depth, self._counted = records.waiting(db, self._receivers()), self._now()
        if self.depth > _TOO_MANY:
            await self._writer.run(records.thin)

    def _complain(self, error: errors.PilotageError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.warning("status messages wait: %s", error)


_STREAMS: tuple[Name, Name] = ("stdout", "stderr")
#: Seconds between two rounds, in each of which a job sends at most one piece of each stream.
_PACE_S = 0.5
#: Bytes of all jobs in one round.
_MOST_ROUND = 1 << 19
#: Maximal bytes of one stream that the hub has not confirmed.
_WINDOW = 1 << 20
#: Jobs that are followed at once.
_MOST_JOBS = 200


@dataclass
class _Followed:
    """A job that a hub follows."""

    #: Until when, by the clock of the event loop.
    until: float
    #: The attempt that the bytes are of.
    attempt: int
    #: Bytes of each stream that the hub has confirmed, and bytes that were sent.
    had: dict[Name, int] = field(default_factory=lambda: dict.fromkeys(_STREAMS, 0))
    sent: dict[Name, int] = field(default_factory=lambda: dict.fromkeys(_STREAMS, 0))
    #: Whether it was answered since it was last asked for.
    answered: bool = False

    def ask(self, one: FollowedJob, until: float) -> None:
        """Record how far the hub has each stream."""
        self.until, self.answered = until, False
        sizes: dict[Name, int] = {"stdout": one.stdout, "stderr": one.stderr}
        for name, size in sizes.items():
            has = size if one.attempt == self.attempt else 0
            if has <= self.had[name]:
                # Nothing has arrived since it last asked: what was sent is lost.
                self.sent[name] = has
            self.had[name] = has
            self.sent[name] = max(self.sent[name], has)

    def begin(self, attempt: int) -> None:
        """Go on with another attempt, whose streams are new."""
        if attempt != self.attempt:
            self.attempt = attempt
            self.had, self.sent = dict.fromkeys(_STREAMS, 0), dict.fromkeys(_STREAMS, 0)


class Logs:
    """Sends the streams of jobs that hubs follow."""

    def __init__(
        self, publish: Callable[[str, bytes], Awaitable[None]], open_reader: Callable[[], Db],
        settings: Callable[[], Settings],
    ) -> None:  # fmt: skip
        """Prepare; `run` starts it."""
        self._publish, self._open_reader, self._settings = publish, open_reader, settings
        self._followed: dict[int, _Followed] = {}
        self._asked = anyio.Event()

    def follow(self, jobs: Mapping[int, FollowedJob], seconds: float) -> None:
        """Send the streams of jobs for some time."""
        until = anyio.current_time() + seconds
        for number, one in jobs.items():
            # If there are too many, the latest requests come first.
            known = self._followed.pop(number, None) or _Followed(until, one.attempt)
            known.ask(one, until)
            self._followed[number] = known
        for number in [*self._followed][:-_MOST_JOBS]:
            del self._followed[number]
        self._asked.set()

    async def run(self) -> None:
        """Send until cancelled."""
        with contextlib.closing(self._open_reader()) as db:
            while True:
                if not self._followed:
                    self._asked = anyio.Event()
                    await self._asked.wait()
                await self._round(db)
                await anyio.sleep(_PACE_S)

    async def _round(self, db: Db) -> None:
        """Send the next piece of each job, until they are many bytes."""
        room, now = _MOST_ROUND, anyio.current_time()
        for number, one in [*self._followed.items()]:
            writes = records.live_output(db, number) if one.until > now else None
            if writes is None:
                # It is over, and a status reports its end, or the request has expired.
                self._followed.pop(number, None)
                continue
            if room <= 0:
                return
            room -= await self._send(number, one, writes)
            if self._followed.pop(number, None) is one:
                # It comes last in the next round.
                self._followed[number] = one

    async def _send(self, number: int, one: _Followed, writes: LiveOutput) -> int:
        """Send the next piece of a job; return its size in bytes."""
        one.begin(writes.attempt)
        starts = dict(one.sent)
        pieces = await anyio.to_thread.run_sync(_read, writes.folder, starts, dict(one.had))
        if one.answered and not any(pieces.values()):
            return 0
        out, err = (base64.b64encode(pieces[name]).decode() for name in _STREAMS)
        said = Log(
            site=self._settings().site, job=number, key=writes.token, attempt=writes.attempt,
            stdout_at=starts["stdout"], stdout=out, stderr_at=starts["stderr"], stderr=err,
        )  # fmt: skip
        try:
            await self._publish(status_topic(writes.back, self._settings()), wire.encode(said))
        except errors.PilotageError as error:
            _log.debug("the log of job %d waits: %s", number, error)
            return 0
        one.answered = True
        for name, piece in pieces.items():
            if one.sent[name] == starts[name]:
                one.sent[name] += len(piece)
        return sum(map(len, pieces.values()))


def _read(folder: str, starts: Mapping[Name, int], had: Mapping[Name, int]) -> dict[Name, bytes]:
    """Read what comes next of each stream, unless too much of it is on its way."""
    if not folder:
        return dict.fromkeys(_STREAMS, b"")
    return {
        name: logs.piece(logs.path(folder, name), at)[:MOST_LOG]
        if at - had[name] < _WINDOW and at < MOST_FOLLOWED
        else b""
        for name, at in starts.items()
    }
