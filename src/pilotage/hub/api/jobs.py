"""Jobs: list, read, submit, change, explain, and read their logs."""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from pilotage.base import errors, text
from pilotage.flow import rerun
from pilotage.hub.api import answers, queries
from pilotage.hub.api.call import ApiCall
from pilotage.job import logs, machine, moves, records
from pilotage.job.model import Attempt, Job, State
from pilotage.match import explain as explaining
from pilotage.match import submission
from pilotage.match.where import places
from pilotage.result import story
from pilotage.status import sites
from pilotage.status.explain import JobExplainer
from pilotage.store import Db

#: A list that finds little looks on for so long, in seconds; who asks may go on from there.
_PATIENCE_S = 0.5
_FIRST_WINDOW = 20_000
_PILOT = re.compile(r"pilot:([0-9]{1,15})")
_DIGITS = re.compile(r"[0-9]{1,15}")


def rows(db: Db, found: Sequence[tuple[Any, ...]]) -> list[answers.JobRow]:
    """Read rows of the store."""
    where = places(db, [one[0] for one in found if one[6]])
    return [answers.JobRow(*(*one[:-1], _pilot(one[-1]), where.get(one[0]))) for one in found]


def _pilot(holder: str) -> int | None:
    found = _PILOT.fullmatch(holder)
    return int(found[1]) if found else None


def index(db: Db, call: ApiCall) -> answers.Jobs:
    """List jobs, the newest first; a long search is cut into pieces that cost little each."""
    wanted: queries.JobsAsk = call.query
    before = int(db.value("job_last")) + 1 if wanted.before is UNSET else wanted.before
    query, values = _question(wanted)
    found: list[answers.JobRow] = []
    window, began = _FIRST_WINDOW, time.monotonic()
    while before > 1 and len(found) < wanted.limit and time.monotonic() - began < _PATIENCE_S:
        floor = max(1, before - window)
        left = wanted.limit - len(found)
        some = db.rows(query, floor=floor, before=before, most=left, **values)
        found += rows(db, some)
        before = found[-1].id if len(some) == left else floor
        window *= 4
    return answers.Jobs(found, before if before > 1 else None)


def _question(wanted: queries.JobsAsk) -> tuple[str, dict[str, Any]]:
    states = [] if wanted.state is UNSET else wanted.state.split(",")
    plain = re.sub(r"([\\%_])", r"\\\1", wanted.search)
    values: dict[str, Any] = {
        "name": wanted.name, "owner": wanted.owner, "tag": wanted.tag,
        "search": f"%{plain}%" if plain else "",
        "number": int(wanted.search) if _DIGITS.fullmatch(wanted.search) else 0,
    }  # fmt: skip
    if len(states) == 1 and State(states[0]) not in machine.FINAL:
        return "api_jobs_live", values | {"state": states[0]}
    return "api_jobs", values | {"states": text.dump(states)}


def show(db: Db, call: ApiCall) -> answers.JobSheet:
    """Read all about a job."""
    job = records.get(db, call.path.id)
    attempts = records.attempts(db, job.id)
    body = db.value("result_get", job=job.id)
    facts = {name: getattr(job, name) for name in _SAME}
    return answers.JobSheet(
        **facts,
        state=str(job.state),
        pilot=_pilot(attempts[-1].starter) if attempts else None,
        place=places(db, [job.id]).get(job.id),
        # The path of the starter's lock is internal.
        attempts=[msgspec.structs.replace(one, starter="") for one in attempts],
        result=None if body is None else text.load(body),
    )


#: What the answer has as the store has it.
_SAME = {*answers.JobSheet.__struct_fields__} & {*Job.__struct_fields__} - {"state"}


def submit(db: Db, call: ApiCall) -> answers.Numbers:
    """Queue jobs, all or none."""
    wanted: queries.Submission = call.body
    project = call.context.project
    for item in wanted.jobs:
        submission.check(item)
    specs = (item.spec for item in wanted.jobs)
    notes = sites.check(db, project.root, project.settings, specs, call.now)
    owner, root = call.grant.owner, str(project.root)
    return answers.Numbers(submission.add(db, wanted.jobs, owner, call.now, root), notes)


def verb(change: Callable[..., State]) -> Callable[[Db, ApiCall], answers.Became]:
    """Return a handler that changes a job of the caller."""

    def act(db: Db, call: ApiCall) -> answers.Became:
        job = records.get(db, call.path.id)
        if not call.grant.acts_for(job.owner):
            raise errors.Denied(
                f"job {job.id} belongs to {job.owner or 'no owner'}",
                hint="only its owner and an admin may change it",
            )
        return answers.Became(str(change(db, job, now=call.now)))

    return act


cancel, hold, release, retry = (
    verb(change) for change in (moves.cancel, moves.hold, moves.release, rerun.retry)
)


def explain(db: Db, call: ApiCall) -> answers.WhyView:
    """Return why a job is where it is."""
    job = records.get(db, call.path.id)
    project = call.context.project
    witness = JobExplainer(db, project.settings, now=call.now, running=True, root=project.root)
    found = explaining.explain(witness.facts(job.id))
    reasons = [answers.WhyReason(one.text, one.detail) for one in found.reasons]
    return answers.WhyView(job.id, str(job.state), found.headline, reasons, found.suggestion)


def told(db: Db, call: ApiCall) -> answers.Told:
    """Return all that happened to a job."""
    found = story.tell(db, call.path.id)
    job = found.job
    return answers.Told(
        job.id, job.name, str(job.state), list(found.moments), list(found.outputs),
        list(found.children),
    )  # fmt: skip


def log(db: Db, call: ApiCall) -> answers.Written:
    """Read a part of what an attempt wrote."""
    wanted: queries.LogAsk = call.query
    # The state comes first: what an attempt wrote until its end is then read.
    attempt = _attempt(records.attempts(db, records.get(db, call.path.id).id), wanted.attempt)
    if attempt is None:
        return answers.Written(0, "", 0, end=False)
    job, now = call.path.id, call.now
    if attempt.ended is None and logs.due(db, job, now):
        # Who reads it need not wait for that.
        call.context.writer.submit(lambda store: logs.follow(store, job, now))
    file = logs.path(attempt.dir, wanted.stream)
    start = wanted.offset if wanted.offset >= 0 else max(0, logs.size(file) + wanted.offset)
    ended = attempt.ended is not None
    piece = logs.piece(file, start)
    shown, used = _text(piece, final=ended and start + len(piece) >= logs.size(file))
    after = start + used
    return answers.Written(attempt.number, shown, after, end=ended and after >= logs.size(file))


def _attempt(attempts: list[Attempt], wanted: int | UnsetType) -> Attempt | None:
    if wanted is UNSET:
        return attempts[-1] if attempts else None
    for one in attempts:
        if one.number == wanted:
            return one
    raise errors.NotFound(f"there is no attempt {wanted}", hint=f"there were {len(attempts)}")


def _text(piece: bytes, *, final: bool) -> tuple[str, int]:
    """Decode whole characters; return how many bytes they were."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    shown = decoder.decode(piece, final)
    return shown, len(piece) - len(decoder.getstate()[0])
