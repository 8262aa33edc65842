"""Status messages of jobs: their content, and an outbox that delivers them in order."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import msgspec
from msgspec import UNSET, UnsetType

from pilotage.agent import records
from pilotage.agent.model import Return, Tale, Word
from pilotage.agent.records import Receivers
from pilotage.agent.settings import Settings
from pilotage.base import crash, errors, paths
from pilotage.bus import balsam, wire
from pilotage.bus.fields import MOST_LOG, MOST_RESULT_TEXT, Speech
from pilotage.bus.model import Job, Reason, Status
from pilotage.bus.port import Bus
from pilotage.job.outcome import Cause
from pilotage.store import Db, Writer

_LONGEST = 10_000
_OVER = frozenset({"done", "failed", "cancelled"})
#: What is to blame for a failure in a step, unless somebody knows better.
_STEPS: dict[str, tuple[str, str]] = {
    "accept": ("policy", "rejected"),
    "stage_in": ("staging", "stage_in"),
    "stage_out": ("staging", "stage_out"),
    "preprocess": ("application", "preprocess"),
    "postprocess": ("application", "postprocess"),
    "submit": ("infrastructure", "submit"),
}
#: What ended an attempt, and whose doing that is.
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


class Tail(NamedTuple):
    """The end of a stream, in base64."""

    text: str = ""
    #: Where it begins, in bytes; only for hubs that understand the field.
    at: int | UnsetType = UNSET


_NOTHING = (Tail(), Tail())


def status_message(
    word: Word, tale: Tale, site: str, streams: tuple[Tail, Tail] = _NOTHING
) -> Status:
    """Return the status of a job; `streams` are the ends of its standard output and error."""
    told: dict[str, Any] = {"state": word.state, "step": word.step}
    return Status(
        site=site, job=word.job, key=tale.back.key, job_id=tale.back.job_id,
        argo_job_id=tale.back.argo_job_id, attempt=word.attempt, seq=word.seq,
        reason=reason(word, tale), scheduler_id=tale.scheduler_id[:200], time=word.time,
        left=tale.left if word.state == "done" else (),
        read=tale.read if word.state in _OVER else 0,
        stdout=streams[0].text, stdout_at=streams[0].at,
        stderr=streams[1].text, stderr_at=streams[1].at,
        result=tale.result if word.state in _OVER and not _too_long(tale) else "",
        **told,
    )  # fmt: skip


def _too_long(tale: Tale) -> bool:
    """Say whether no message could carry what a function returned."""
    return len(tale.result.encode()) > MOST_RESULT_TEXT


def stream_ends(word: Word, tale: Tale) -> tuple[Tail, Tail]:
    """Read the ends of what a job that is over wrote to its two streams."""
    if word.state not in _OVER or not tale.folder:
        return _NOTHING
    out, err = (_tail(f"{tale.folder}/{name}") for name in ("stdout", "stderr"))
    # A hub that follows no logs does not know the fields that say where ends begin.
    return (out, err) if tale.followed else (Tail(out.text), Tail(err.text))


def _tail(path: str) -> Tail:
    """Read the end of a file; nothing if it cannot be read."""
    try:
        with paths.regular(path) as file:
            at = max(0, os.fstat(file).st_size - MOST_LOG)
            return Tail(base64.b64encode(os.pread(file, MOST_LOG, at)).decode(), at)
    except (OSError, errors.Denied):
        return Tail()


def encoded(said: Status, words: Speech, job: Callable[[], Job], created: float) -> bytes:
    """Write a status in somebody's words; the whole job is only needed for Balsam's."""
    match words:
        case "balsam":
            return balsam.balsam_status(job(), said, created)
        case "argo":
            return balsam.argo_status(said)
        case "pilotage":
            return wire.encode(said)


def status_topic(back: Return, settings: Settings) -> str:
    """Say where status messages of a job go."""
    if back.reply:
        return back.reply
    return settings.bus.balsam_status if back.speech == "balsam" else settings.status_topic


def reason(word: Word, tale: Tale) -> Reason:
    """Say why a job is where it is, and whose doing that is."""
    text = word.reason
    if word.seq == 1 and tale.notes:
        text = "; ".join(part for part in (text, *tale.notes) if part)
    if word.state in _OVER and _too_long(tale):
        said = f"its result is too long to be sent: {len(tale.result)} characters"
        text = "; ".join(part for part in (text, said) if part)
    kind, code = (word.kind, word.code) if word.kind else _blame(word, tale)
    return msgspec.convert({"class": kind, "code": code, "text": text[:_LONGEST]}, Reason)


def _blame(word: Word, tale: Tale) -> tuple[str, str]:
    match word.state:
        case "waiting":
            return "policy", "limit"
        case "held":
            return "person", "held"
        case "cancelled":
            return "person", "cancelled"
        case "rejected":
            return "policy", "rejected"
        case "failed":
            return _STEPS.get(word.step) or _end(tale)
        case "queued" if word.attempt and tale.attempt in ("failed", "lost"):
            return _end(tale)
        case "staging_out" if tale.attempt == "failed":
            return _end(tale)
        case _:
            return "", ""


def _end(tale: Tale) -> tuple[str, str]:
    """Say how an attempt ended; one of an older store by its code alone."""
    if tale.cause:
        return _CAUSES[tale.cause]
    if tale.attempt == "lost":
        return "infrastructure", "lost"
    if tale.signal:
        return "application", "signal"
    if tale.exit:
        return "application", "exit"
    # It ended well and yet failed: a declared output is missing.
    return ("application", "output") if tale.exit == 0 else ("infrastructure", "lost")


_log = logging.getLogger("pilotage.edge")
#: Seconds until the next look if nobody has told of anything new.
_LOOK_S = 1.0
#: How long news waits at most while many jobs come in, and how often that is looked at.
_CROWDED_S = 2.0
_GLANCE_S = 0.05
#: Seconds before the bus is tried again that took nothing.
_PAUSE_S = 1.0
#: How long a topic is not tried that the broker keeps from us, and how many are remembered.
_DENIED_S = 60.0
_MOST_DENIED = 10_000
#: Messages that are looked at together, and those on the way to the bus at once.
_MOST = 500
_AT_ONCE = 100
#: Beyond so many that wait, what is old news is dropped; ends are not.
_TOO_MANY = 10_000


class Outbox:
    """Says what the store holds to be said."""

    def __init__(
        self, bus: Bus, writer: Writer, open_reader: Callable[[], Db],
        settings: Callable[[], Settings], now: Callable[[], float],
        crowded: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """Get ready; nothing happens before `run`. News waits a little while it is `crowded`."""
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
        #: Topics that the broker keeps from us, and until when they are not tried.
        self._denied: dict[str, float] = {}
        #: Messages that are a mistake of ours.
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
                    # What could not be sent is tried again, however much else there is to say.
                    self._after, self._stuck = 0, set()
                words = records.unsent(db, self._after, _MOST, self._receivers())
                if words:
                    await self._give_way()
                    await self._round(db, words)
                elif self._after:
                    # All that could be sent is; what could not needs a rest.
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
        """Let jobs that wait at the broker become safe before news is sent, but not for long."""
        with anyio.move_on_after(_CROWDED_S):
            while self._crowded():  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(_GLANCE_S)

    def _all_sent(self) -> None:
        self.depth = 0
        if self._trouble:
            self._trouble = ""
            _log.info("status messages are sent again")

    async def _round(self, db: Db, words: Sequence[Word]) -> None:
        """Send some messages, those on different jobs at once."""
        await self._count(db, len(words))
        by_job: dict[tuple[int, int], list[Word]] = {}
        for word in words:
            # What is not about a job has no order.
            by_job.setdefault((word.job, 0 if word.job else word.id), []).append(word)
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
        self, db: Db, words: Sequence[Word], sent: list[int], room: anyio.Semaphore
    ) -> None:
        """Send the messages on one job, one after the other; the first that fails is the last."""
        for word in words:
            async with room:
                try:
                    await self._send(db, word)
                except errors.PilotageError as error:
                    self._complain(error)
                    self._leave(word)
                    return
                except Exception:  # noqa: BLE001 - one that cannot be said does not silence the others
                    if word.id not in self._odd:
                        self._odd.add(word.id)
                        _log.exception("message %d: this is a mistake in Pilotage", word.id)
                    self._leave(word)
                    return
            sent.append(word.id)

    def _leave(self, word: Word) -> None:
        """Have what is said of a job later wait for what could not be said now."""
        if word.job:
            self._stuck.add(word.job)

    async def _send(self, db: Db, word: Word) -> None:
        settings = self._settings()
        if word.body:
            await self.publish(word.topic, word.body.encode())
            return
        tale = records.tale(db, word.job, word.attempt)
        if tale is None:
            return  # the job was forgotten, and with it what there was to say
        streams = await anyio.to_thread.run_sync(stream_ends, word, tale)
        said = status_message(word, tale, settings.site, streams)
        body = encoded(said, tale.back.speech, lambda: records.message(db, word.job), tale.created)
        key = f"{settings.site}:{word.job}:{word.seq}"
        await self.publish(status_topic(tale.back, settings), body, key)

    async def publish(self, topic: str, body: bytes, key: str = "") -> None:
        """Send to a topic, or by the site's own while the broker does not let us.

        Each try costs the connection, with all that is on the way over it.
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
        """Know how many wait; counting many takes a while, so it is not done each time."""
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
