"""Notifications on the progress of flows: written to the outbox as the story of flows is read on.

The cursor of the story and the outbox change in one transaction, so no notification is lost or
repeated after a crash. The broker sends them in order for each flow; ends are also sent by HTTPS
and by a mail program, which are repeated until they succeed, for about a day.
"""

from __future__ import annotations

import functools
import logging
import subprocess
from collections.abc import Callable, Sequence
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any, Literal
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx2
import msgspec

from pilotage.base import crash, errors, text
from pilotage.base.wakeup import Wakeup, patience
from pilotage.bus.balsam import balsam_status
from pilotage.bus.fields import State
from pilotage.bus.model import Job, Reason, Status
from pilotage.bus.port import Bus
from pilotage.event import records
from pilotage.flow import records as flow_records
from pilotage.flow.records import FlowHead, StoryLine
from pilotage.project import settings as config
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.flow")
Channel = Literal["status", "webhook", "email"]
#: Seconds before the first retry, and between the last ones.
_SOON_S, _LATE_S = 1.0, 15.0


class Notification(msgspec.Struct, frozen=True):
    """A message."""

    id: int
    flow: int
    kind: Channel
    #: A topic, a URL or an address.
    topic: str
    body: str
    tries: int

    @property
    def line(self) -> tuple[int, str]:
        """The key of its order: messages of one line are sent one after the other."""
        return (self.flow, self.topic)


def put(db: Db, flow: int, kind: Channel, topic: str, body: str) -> None:
    """Add a message to the outbox, in a transaction of the caller."""
    db.run("flows_put", flow=flow, kind=kind, topic=topic, body=body)


def unsent(
    db: Db, kinds: Sequence[Channel], now: float, *, after: int, most: int
) -> list[Notification]:
    """Read messages of some kinds that are due."""
    wanted = text.dump(list(kinds))
    rows = db.rows("flows_unsent", kinds=wanted, now=now, after=after, most=most)
    return [Notification(*row) for row in rows]


def sent(db: Db, words: Sequence[Notification]) -> None:
    """Delete messages that were sent."""
    if words:
        db.run("flows_sent", ids=text.dump([one.id for one in words]))


def later(db: Db, word: Notification, now: float) -> float:
    """Retry a message later, each time with a longer pause; return when."""
    after = now + min(_LATE_S, _SOON_S * 2.0 ** min(word.tries, 10))
    db.run("flows_later", id=word.id, after=after)
    return after


#: The cursor in the stories.
CURSOR = "flows told"
#: Lines of stories that are read at once.
_MOST = 2000
_LONGEST = 2000
_FINAL = ("done", "failed", "cancelled")

#: Argo's states of a chain, of one of its jobs, and of a job at its site.
_WHOLE = {
    "running": ["CREATED", "STAGED_IN"],
    "staging_out": ["SUBJOBS_COMPLETED"],
    "done": ["STAGED_OUT", "HISTORY"],
    "failed": ["FAILED"],
    "cancelled": ["FAILED"],
    "rejected": ["REJECTED"],
}
_STEP = {"done": ["SUBJOB_COMPLETED", "SUBJOB_INCREMENTED"]}
_TASK = {
    "sent": ["SUBJOB_SUBMITTED"],
    "ready": ["SUBJOB_IN_PREPROCESS"],
    "staging_in": ["SUBJOB_IN_PREPROCESS"],
    "submitted": ["SUBJOB_QUEUED"],
    "running": ["SUBJOB_RUNNING"],
    "staging_out": ["SUBJOB_RUN_FINISHED"],
    "failed": ["SUBJOB_COMPLETE_FAILED"],
    "rejected": ["SUBJOB_REJECTED"],
}


#: Balsam's states of a job, by those of the flow and of its task.
_JOB: dict[str, State] = {
    "running": "queued",
    "done": "done",
    "failed": "failed",
    "cancelled": "cancelled",
    "rejected": "rejected",
}
_RUN: dict[str, State] = {
    "staging_in": "staging_in",
    "submitted": "submitted",
    "running": "running",
    "staging_out": "staging_out",
}
#: A job of which nothing is known.
NO_JOB = Job(site="any", application="unknown")


def follow(db: Db) -> bool:
    """Read the next lines of all stories; return whether there may be more."""
    after = int(records.cursor(db, CURSOR) or 0)
    rows = db.rows("flows_story", after=after, most=_MOST)
    heads: dict[int, FlowHead] = {}
    for row in rows:
        line = StoryLine(*row)
        if line.flow not in heads:
            heads[line.flow] = flow_records.head(db, line.flow)
        _tell(db, line, heads[line.flow])
    if rows:
        records.advance(db, CURSOR, str(rows[-1][0]))
    return len(rows) == _MOST


def _tell(db: Db, line: StoryLine, head: FlowHead) -> None:
    notify = head.flow.notify
    if notify.reply and notify.speech == "argo":
        for body in argo(line, notify.number):
            put(db, line.flow, "status", notify.reply, body)
    elif notify.reply and notify.speech == "balsam":
        for body in balsam(line, notify.number, _job(db, head)):
            put(db, line.flow, "status", notify.reply, body)
    elif notify.reply:
        seq, key = db.row("flows_count_up", flow=line.flow) or (0, "")
        put(db, line.flow, "status", notify.reply, ours(line, head.name, _own(key), seq))
    if line.step or line.state not in _FINAL:
        return
    if notify.webhook or notify.email:
        seq, key = db.row("flows_count_up", flow=line.flow) or (0, "")
        body = ours(line, head.name, _own(key), seq)
        if notify.webhook:
            put(db, line.flow, "webhook", notify.webhook, body)
        if notify.email:
            put(db, line.flow, "email", notify.email, body)


def _own(key: str) -> str:
    """Return the key as its sender wrote it, without the name of the user."""
    parts = key.split(":", 2)
    return parts[2] if len(parts) == 3 and parts[0] == "message" else key


def ours(line: StoryLine, name: str, key: str, seq: int) -> str:
    """Return a line as a message `bus.model.Course`."""
    return text.dump(
        {
            "kind": "course", "v": 1, "flow": line.flow, "key": key, "name": name[:200],
            "step": line.step, "task": line.task, "attempt": line.number, "seq": seq,
            "state": line.state, "text": line.words[:_LONGEST], "time": line.time,
        }
    )  # fmt: skip


def argo(line: StoryLine, number: int) -> list[str]:
    """Return a line as Argo's `ArgoJobStatus`; nothing if it has no such state."""
    known = _TASK if line.task else _STEP if line.step else _WHOLE
    # Both a job that was sent and one that its site has prepared are ready.
    state = "sent" if line.state == "ready" and line.words.startswith("sent to ") else line.state
    return [
        text.dump(
            {"state": word, "job_id": number or line.flow, "message": line.words[:_LONGEST]}
        )
        for word in known.get(state, ())
    ]  # fmt: skip


def balsam(line: StoryLine, number: int, job: Job) -> list[str]:
    """Return a line as Balsam's `BalsamJobStatus`; nothing if it has no such state."""
    state = (_RUN if line.task else {} if line.step else _JOB).get(line.state)
    if state is None:
        return []
    status = Status(
        site=job.site, job=line.flow, job_id=number, seq=1, state=state, time=line.time,
        reason=Reason(text=line.words[:_LONGEST]),
    )  # fmt: skip
    return [balsam_status(job, status, line.time).decode()]


def _job(db: Db, head: FlowHead) -> Job:
    """Return the job of a flow of one step, with the fields that Balsam reports."""
    found = flow_records.definition(db, head.id)
    (step,) = found.steps.values()
    application = step.application or step.recipe.get("app", NO_JOB.application)
    return Job(site=(*step.sites, NO_JOB.site)[0], application=application, name=head.name)


#: After this many lines without a notification, the cursor is moved.
_MOST_UNREAD = 2000


class StoryFollower:
    """Follows all stories; only notifications cost a transaction."""

    def __init__(self, writer: Writer, reader: Db, bell: Wakeup) -> None:
        """Take the store; `bell` rings when there may be new lines."""
        self._writer, self._reader, self._bell = writer, reader, bell
        #: The last line that was read, and the number of lines since the cursor was moved.
        self._last = 0
        self._idle = 0

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self._bell.wait()
            while self._wanted():
                while await self._writer.run(follow):
                    pass
                self._idle = 0

    def _wanted(self) -> bool:
        """Return whether there is a notification to write, or the cursor is far behind."""
        start = max(self._last, int(records.cursor(self._reader, CURSOR) or 0))
        rows = self._reader.rows("flows_story", after=start, most=_MOST_UNREAD)
        if not rows:
            return False
        self._last = rows[-1][0]
        self._idle += len(rows)
        flows = {row[2] for row in rows}
        return self._idle >= _MOST_UNREAD or any(self._told(flow) for flow in flows)

    def _told(self, flow: int) -> bool:
        asked = flow_records.head(self._reader, flow).flow.notify
        return bool(asked.reply or asked.webhook or asked.email)


_KINDS: tuple[Channel, ...] = ("status",)
#: Messages read together, and messages on the way to the broker at once.
_MOST_UNSENT = 1000
_AT_ONCE = 200
#: Seconds before a message is retried that the broker did not accept.
_PAUSE_S = 1.0


class BrokerSender:
    """Sends notifications by the broker."""

    def __init__(
        self, bus: Bus, writer: Writer, reader: Db, now: Callable[[], float], bell: Wakeup
    ) -> None:
        """Take the store; `bell` rings when there may be something to send."""
        self._bus, self._writer, self._reader = bus, writer, reader
        self._now, self._bell = now, bell
        self._trouble = ""
        #: Lines whose next message could not be sent, up to which one all were tried, and until
        #: when others come before them.
        self._stuck: set[tuple[int, str]] = set()
        self._after, self._due = 0, 0.0

    async def run(self) -> None:
        """Send until cancelled."""
        more = False
        while True:
            if self._stuck and not more and anyio.current_time() >= self._due:
                self._stuck, self._after = set(), 0
            words = unsent(self._reader, _KINDS, self._now(), after=self._after, most=_MOST_UNSENT)
            more = len(words) == _MOST_UNSENT
            if words:
                await self._round([one for one in words if one.line not in self._stuck])
                # A message that the broker rejects must not block those after it.
                self._after = words[-1].id if self._stuck else 0
            elif self._stuck:
                await self._bell.wait(max(0.0, self._due - anyio.current_time()))
            else:
                self._all_sent()
                due = self._reader.value("flows_next_word", now=self._now())
                await self._bell.wait(patience(due, self._now()))

    def _all_sent(self) -> None:
        if self._trouble:
            self._trouble = ""
            _log.info("messages of flows are sent again")

    async def _round(self, words: Sequence[Notification]) -> None:
        """Send some messages, those of different lines at once."""
        lines: dict[tuple[int, str], list[Notification]] = {}
        for word in words:
            lines.setdefault(word.line, []).append(word)
        gone: list[Notification] = []
        room = anyio.Semaphore(_AT_ONCE)
        async with anyio.create_task_group() as tasks:
            for line in lines.values():
                tasks.start_soon(self._line, line, gone, room)
        crash.point("flow.published")
        if gone:
            await self._writer.run(functools.partial(sent, words=gone))
            crash.point("flow.sent")

    async def _line(
        self, words: Sequence[Notification], gone: list[Notification], room: anyio.Semaphore
    ) -> None:  # fmt: skip
        """Send one after the other, up to the first that fails."""
        for word in words:
            async with room:
                try:
                    await self._bus.publish(word.topic, word.body.encode(), f"flow:{word.id}")
                except (errors.Denied, errors.UsageError) as error:
                    # Each retry would cost the connection, with all messages on the way.
                    _log.warning("%s", error)
                    gone.append(word)
                    return
                except errors.PilotageError as error:
                    self._complain(error)
                    self._leave(word)
                    return
            gone.append(word)

    def _leave(self, word: Notification) -> None:
        """Block the line of a message for a while."""
        if not self._stuck:
            self._due = anyio.current_time() + _PAUSE_S
        self._stuck.add(word.line)

    def _complain(self, error: errors.PilotageError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.warning("messages of flows wait: %s", error)


_ENDS: tuple[Channel, ...] = ("webhook", "email")
_ENDS_AT_ONCE = 10
_PATIENCE_S = 20.0
#: The most tries, which are 15 s apart in the end.
_MOST_TRIES = 2000
_LONGEST_HEADER = 200


class EndNotifier:
    """Sends ends of flows by HTTPS and by mail."""

    def __init__(
        self, settings: config.FlowSettings, writer: Writer, reader: Db, now: Callable[[], float],
        bell: Wakeup,
    ) -> None:  # fmt: skip
        """Take the store; `bell` rings when there may be something to send."""
        self._settings, self._writer, self._reader = settings, writer, reader
        self._now, self._bell = now, bell
        self._told: set[str] = set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            now = self._now()
            words = unsent(self._reader, _ENDS, now, after=0, most=_ENDS_AT_ONCE)
            if not words:
                due = self._reader.value("flows_next_word", now=now)
                await self._bell.wait(patience(due, now))
                continue
            async with anyio.create_task_group() as tasks:
                for word in words:
                    tasks.start_soon(self._one, word)

    async def _one(self, word: Notification) -> None:
        try:
            await (self._call(word) if word.kind == "webhook" else self._mail(word))
        except errors.Denied as error:
            _log.warning("flow %d: %s", word.flow, error)
            await self._done(word)
        except errors.Unavailable as error:
            if str(error) not in self._told:
                self._told = {str(error)}
                _log.warning("flow %d: %s; it is tried again", word.flow, error)
            await self._later(word)
        except Exception:  # noqa: BLE001 - an unexpected error blocks only this message
            _log.exception("flow %d: this is a mistake in Pilotage", word.flow)
            await self._later(word)
        else:
            crash.point("flow.told")
            await self._done(word)

    async def _later(self, word: Notification) -> None:
        if word.tries >= _MOST_TRIES:
            await self._done(word)
            return
        step = functools.partial(later, word=word, now=self._now())
        await self._writer.run(step)

    async def _done(self, word: Notification) -> None:
        await self._writer.run(lambda db: sent(db, [word]))

    async def _call(self, word: Notification) -> None:
        check_webhook(word.topic, self._settings.webhooks)
        place = urlsplit(word.topic).hostname
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"flow-{word.id}"}
        try:
            async with httpx2.AsyncClient(timeout=_PATIENCE_S, follow_redirects=False) as client:
                with anyio.fail_after(_PATIENCE_S):
                    async with client.stream(
                        "POST", word.topic, content=word.body.encode(), headers=headers
                    ) as answer:
                        status = answer.status_code
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, TimeoutError) as error:
            raise errors.Unavailable(f"{place} was not notified: {error}") from error
        if not httpx2.codes.is_success(status):
            raise errors.Unavailable(f"{place} was not notified: it answers with status {status}")

    async def _mail(self, word: Notification) -> None:
        program = self._settings.mail
        if not program:
            raise errors.Denied("no mail is sent: `flows.mail` names no program")
        body = mail(word.topic, text.load(word.body))
        try:
            await anyio.to_thread.run_sync(_pipe, program, body)
        except (OSError, subprocess.SubprocessError) as error:
            raise errors.Unavailable(f"{program[0]} did not take a mail: {error}") from error


def check_webhook(url: str, hosts: tuple[str, ...]) -> None:
    """Refuse a webhook that the settings do not allow."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise errors.Denied("the webhook is no URL") from None
    name = f"{host}:{port}" if port else host
    if parts.scheme != "https" or parts.username is not None or parts.password is not None:
        raise errors.Denied("a webhook is an `https://` URL with no name and no password in it")
    if name not in hosts:
        raise errors.Denied(f"`{name}` is not notified: it is not among `flows.webhooks`")


def mail(address: str, said: dict[str, Any]) -> bytes:
    """Return the mail on the end of a flow."""
    message = EmailMessage(policy=SMTP)
    # The library rejects a line end in a header.
    try:
        message["To"] = _line(address)
    except Exception as error:  # it trips over odd addresses in many ways
        raise errors.Denied(f"no mail can be sent to {_line(address)!r}") from error
    message["Subject"] = _line(f"Pilotage: {said['name']} ({said['flow']}) is {said['state']}")
    message["Auto-Submitted"] = "auto-generated"
    words = text.show(said["text"]) or f"The flow is {said['state']}."
    message.set_content(f"{words}\n\n`pilotage flow show {said['flow']}` shows more.\n")
    return message.as_bytes()


def _line(words: str) -> str:
    return "".join(one if one.isprintable() else " " for one in words)[:_LONGEST_HEADER]


def _pipe(program: tuple[str, ...], body: bytes) -> None:
    subprocess.run(
        list(program), input=body, check=True, timeout=_PATIENCE_S, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
