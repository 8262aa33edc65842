"""What there is to tell about one job: why it is where it is, what happened, what it wrote."""

from __future__ import annotations

import codecs

from msgspec import UNSET, UnsetType

from pilotage.base import errors
from pilotage.hub.api import ask, tell
from pilotage.hub.api.call import Call
from pilotage.job import logs, records
from pilotage.job.model import Attempt
from pilotage.match import explain as explaining
from pilotage.result import story
from pilotage.status.explain import Witness
from pilotage.store import Db


def explain(db: Db, call: Call) -> tell.Why:
    """Say why a job is where it is."""
    job = records.get(db, call.path.id)
    project = call.hands.project
    witness = Witness(db, project.settings, now=call.now, running=True, root=project.root)
    found = explaining.explain(witness.facts(job.id))
    reasons = [tell.Reason(one.text, one.detail) for one in found.reasons]
    return tell.Why(job.id, str(job.state), found.headline, reasons, found.suggestion)


def told(db: Db, call: Call) -> tell.Told:
    """Tell all that happened to a job."""
    found = story.tell(db, call.path.id)
    job = found.job
    return tell.Told(
        job.id, job.name, str(job.state), list(found.moments), list(found.outputs),
        list(found.children),
    )  # fmt: skip


def log(db: Db, call: Call) -> tell.Written:
    """Read a part of what an attempt wrote."""
    wanted: ask.LogAsk = call.query
    # The state comes first: what an attempt wrote until its end is then read.
    attempt = _attempt(records.attempts(db, records.get(db, call.path.id).id), wanted.attempt)
    if attempt is None:
        return tell.Written(0, "", 0, end=False)
    job, now = call.path.id, call.now
    if attempt.ended is None and logs.due(db, job, now):
        # Who reads it need not wait for that.
        call.hands.writer.submit(lambda store: logs.follow(store, job, now))
    file = logs.path(attempt.dir, wanted.stream)
    start = wanted.offset if wanted.offset >= 0 else max(0, logs.size(file) + wanted.offset)
    ended = attempt.ended is not None
    piece = logs.piece(file, start)
    shown, used = _text(piece, final=ended and start + len(piece) >= logs.size(file))
    after = start + used
    return tell.Written(attempt.number, shown, after, end=ended and after >= logs.size(file))


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
