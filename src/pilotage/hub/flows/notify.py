"""Who wants to know is told how a flow goes: by the broker, by a webhook, by mail.

The story of flows is followed line by line; what is to be said enters the outbox in the same
transaction in which the story is read on, so nothing is left out, whatever is killed when.
"""

from __future__ import annotations

import msgspec

from pilotage import text
from pilotage.event import records
from pilotage.flow import definition
from pilotage.flow.definition import Head
from pilotage.hub.flows import outbox
from pilotage.store import Db

#: How far the stories were read.
CURSOR = "flows told"
#: Lines of stories that are read at once.
_MOST = 2000
_LONGEST = 2000
_FINAL = ("done", "failed", "cancelled")

#: What Argo calls what is said of a chain as a whole, of one of its jobs, and of that at its site.
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


class Line(msgspec.Struct, frozen=True):
    """A line in the story of a flow."""

    id: int
    time: float
    flow: int
    #: Empty if it is on the flow as a whole.
    step: str
    #: 0 if it is on the step as a whole.
    task: int
    number: int
    state: str
    words: str


def follow(db: Db) -> bool:
    """Read on in the stories of all flows; say whether there may be more."""
    after = int(records.cursor(db, CURSOR) or 0)
    rows = db.rows("flows_story", after=after, most=_MOST)
    heads: dict[int, Head] = {}
    for row in rows:
        line = Line(*row)
        if line.flow not in heads:
            heads[line.flow] = definition.head(db, line.flow)
        _tell(db, line, heads[line.flow])
    if rows:
        records.advance(db, CURSOR, str(rows[-1][0]))
    return len(rows) == _MOST


def _tell(db: Db, line: Line, head: Head) -> None:
    notify = head.flow.notify
    if notify.reply and notify.speech == "argo":
        for body in argo(line, notify.number):
            outbox.put(db, line.flow, "status", notify.reply, body)
    elif notify.reply:
        seq, key = db.row("flows_count_up", flow=line.flow) or (0, "")
        outbox.put(db, line.flow, "status", notify.reply, ours(line, head.name, _own(key), seq))
    if line.step or line.state not in _FINAL:
        return
    if notify.webhook or notify.email:
        seq, key = db.row("flows_count_up", flow=line.flow) or (0, "")
        body = ours(line, head.name, _own(key), seq)
        if notify.webhook:
            outbox.put(db, line.flow, "webhook", notify.webhook, body)
        if notify.email:
            outbox.put(db, line.flow, "email", notify.email, body)


def _own(key: str) -> str:
    """Return the key that somebody sent: others have it, too, who are told from them by name."""
    parts = key.split(":", 2)
    return parts[2] if len(parts) == 3 and parts[0] == "message" else key


def ours(line: Line, name: str, key: str, seq: int) -> str:
    """Write what a line says in our own words, as `bus.model.Course` has it."""
    return text.dump(
        {
            "kind": "course", "v": 1, "flow": line.flow, "key": key, "name": name[:200],
            "step": line.step, "task": line.task, "attempt": line.number, "seq": seq,
            "state": line.state, "text": line.words[:_LONGEST], "time": line.time,
        }
    )  # fmt: skip


def argo(line: Line, number: int) -> list[str]:
    """Write what a line says as Argo's `ArgoJobStatus`; nothing if it has no word for it."""
    known = _TASK if line.task else _STEP if line.step else _WHOLE
    # One that was sent is ready, and so is one that its site has got ready.
    state = "sent" if line.state == "ready" and line.words.startswith("sent to ") else line.state
    return [
        text.dump(
            {"state": word, "job_id": number or line.flow, "message": line.words[:_LONGEST]}
        )
        for word in known.get(state, ())
    ]  # fmt: skip
