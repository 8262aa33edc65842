"""How a job at a site ended: by its own evidence, else by the scheduler's word, else it is lost."""

from __future__ import annotations

import msgspec

from pilotage.batch import job
from pilotage.batch.job import Guest
from pilotage.batch.party import End
from pilotage.batch.system.model import Cause, Item
from pilotage.job import outcome, retry
from pilotage.run.model import Ending
from pilotage.run.outcome import classify

#: What the scheduler says of ends that are the job's own, in words.
OWN = {
    Cause.MEMORY: "it used more memory than it had asked for",
    Cause.TIMEOUT: "it used up its wall time",
}
#: And of those that are nobody's fault: the job is tried again.
LOST = {
    Cause.NODE: "its node failed",
    Cause.PREEMPTED: "its place was given to another job",
    Cause.SIGNALLED: "it was killed from outside",
    Cause.UNKNOWN: "the batch system does not say how it ended",
}
#: What the scheduler calls an end, and what that is for us; any other is a loss.
_CAUSES = {
    Cause.MEMORY: outcome.Cause.MEMORY,
    Cause.TIMEOUT: outcome.Cause.TIMEOUT,
    Cause.NODE: outcome.Cause.NODE,
    Cause.PREEMPTED: outcome.Cause.PREEMPTED,
    Cause.SIGNALLED: outcome.Cause.KILLED,
    Cause.CANCELLED: outcome.Cause.CANCELLED,
}
#: What the scheduler may tell of an end from outside of which there is evidence.
_TOLD = {*OWN, Cause.NODE, Cause.PREEMPTED, Cause.CANCELLED}


def judge(one: Guest, end: End, stopping: str) -> retry.AttemptEnd:
    """Say what the end of a batch job means for its job; `stopping` says why it was called off."""
    if end.evidence is not None:
        try:
            return _by_evidence(one, end, stopping)
        except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
            words = f"the evidence of its end cannot be read: {error}"
            return retry.AttemptEnd(ok=False, message=words, cause=outcome.Cause.LOST, lost=True)
    if stopping:
        return retry.AttemptEnd(
            ok=False, message=stopping, cause=outcome.Cause.STOPPED, stopped=True
        )
    if end.item is None:
        words = end.never or "it vanished from the batch system, and left no evidence of its end"
        cause = outcome.Cause.NOT_STARTED if end.never else outcome.Cause.LOST
        return retry.AttemptEnd(ok=False, message=words, cause=cause, lost=not end.final)
    return _by_scheduler(end.item, never=end.never)


def _by_evidence(one: Guest, end: End, stopping: str) -> retry.AttemptEnd:
    evidence = end.evidence or {}
    found = msgspec.convert(evidence["end"], Ending, strict=False)
    outputs = evidence.get("outputs")
    left = outputs if isinstance(outputs, dict) else {}
    judged = classify(found, one.spec.ok_codes, lambda: job.lacking(one, left))
    if stopping and not judged.ok:
        return msgspec.structs.replace(judged, stopped=True, message=stopping)
    if judged.ok and outputs is None and (one.outputs or one.optional):
        message = "its batch job died before anybody looked at its outputs"
        return msgspec.structs.replace(
            judged, ok=False, missing=(), lost=True, message=message, cause=outcome.Cause.LOST
        )
    if not judged.ok and end.item is not None and end.item.cause in _TOLD:
        told = _by_scheduler(end.item, never="")
        return msgspec.structs.replace(
            judged, stopped=False, message=told.message, cause=told.cause, lost=told.lost,
            call_off=told.call_off,
        )  # fmt: skip
    if judged.stopped:
        # Nobody here asked for it: the batch system took its node away.
        return msgspec.structs.replace(judged, stopped=False, lost=True, cause=outcome.Cause.KILLED)
    return judged


def _by_scheduler(item: Item, never: str) -> retry.AttemptEnd:
    cause = item.cause or Cause.UNKNOWN
    said = f" ({item.words})" if item.words else ""
    if cause is Cause.CANCELLED:
        words = f"it was called off at the batch system{said}"
        return retry.AttemptEnd(ok=False, message=words, cause=_CAUSES[cause], call_off=words)
    if cause in OWN and not never:
        words = f"the batch system ended it: {OWN[cause]}{said}"
        return retry.AttemptEnd(ok=False, message=words, cause=_CAUSES[cause])
    # Our program leaves evidence before it ends as the payload did: this is not the payload's code.
    words = LOST.get(cause, f"its batch job ended with exit code {item.exit} and no evidence")
    words = f"{words}{'; ' + never if never else ''}{said}"
    return retry.AttemptEnd(
        ok=False, message=words, cause=_CAUSES.get(cause, outcome.Cause.LOST), lost=True
    )
