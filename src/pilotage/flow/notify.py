"""Notifications on the progress of flows: written to the outbox as the story of flows is read on.

The cursor of the story and the outbox change in one transaction, so no notification is lost or
repeated after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from pilotage.base import text
from pilotage.base.wakeup import Wakeup
from pilotage.bus.balsam import balsam_status
from pilotage.bus.fields import State
from pilotage.bus.model import Job, Reason, Status
from pilotage.event import records
from pilotage.flow import records as flow_records
from pilotage.flow.records import FlowHead, StoryLine
from pilotage.store import Db, Writer

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
