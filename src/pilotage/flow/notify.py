"""Who wants to know is told how a flow goes: by the broker, by a webhook, by mail.

The story of flows is followed line by line; what is to be said enters the outbox in the same
transaction in which the story is read on, so nothing is left out, whatever is killed when.
"""

from __future__ import annotations

from pilotage.base import text
from pilotage.bus.balsam import balsam_status
from pilotage.bus.fields import State
from pilotage.bus.model import Job, Reason, Status
from pilotage.event import records
from pilotage.flow import definition, outbox
from pilotage.flow import records as flow_records
from pilotage.flow.definition import Head
from pilotage.flow.records import Line
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


#: What Balsam is told of a job, by what is said of it as a whole and of its task.
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
#: Stands for a job of which nothing is known.
NO_JOB = Job(site="any", application="unknown")


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
    elif notify.reply and notify.speech == "balsam":
        for body in balsam(line, notify.number, _job(db, head)):
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


def balsam(line: Line, number: int, job: Job) -> list[str]:
    """Write what a line says as Balsam's `BalsamJobStatus`; nothing if it has no word for it."""
    state = (_RUN if line.task else {} if line.step else _JOB).get(line.state)
    if state is None:
        return []
    status = Status(
        site=job.site, job=line.flow, job_id=number, seq=1, state=state, time=line.time,
        reason=Reason(text=line.words[:_LONGEST]),
    )  # fmt: skip
    return [balsam_status(job, status, line.time).decode()]


def _job(db: Db, head: Head) -> Job:
    """Write the job that a flow of one step is, as far as Balsam tells of it."""
    found = flow_records.definition(db, head.id)
    (step,) = found.steps.values()
    application = step.application or step.recipe.get("app", NO_JOB.application)
    return Job(site=(*step.sites, NO_JOB.site)[0], application=application, name=head.name)
