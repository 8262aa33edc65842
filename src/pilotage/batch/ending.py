"""How a job at a site ended: by its own evidence, else by the scheduler's word, else it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from pilotage.base import crash, errors
from pilotage.batch import job
from pilotage.batch.held import House, Telling
from pilotage.batch.job import Guest, Room
from pilotage.batch.remote import Remote
from pilotage.batch.submission import End
from pilotage.batch.system.model import Cause, Item
from pilotage.job import outcome, retry
from pilotage.job.model import State
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
        message = "its batch job died before its outputs were checked"
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
        words = f"it was cancelled at the batch system{said}"
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


_log = logging.getLogger("pilotage.batch")
_AGAIN_S = 5.0


class Data(Protocol):
    """Brings what jobs read to the site, and what they leave home."""

    @property
    def apart(self) -> bool:
        """Whether jobs go to the batch system as soon as their own data is there."""
        ...

    def brings(self, one: Guest) -> bool:
        """Say whether anything must be at the site before a job can be submitted."""
        ...

    async def leaves(self, one: Guest, found: dict[str, Any]) -> bool:
        """Say whether anything must be done with what a job has left."""
        ...

    async def bring(self, one: Guest) -> None:
        """Have all that a job reads at the site, and note in the guest what it is."""

    async def shaped(self, one: Guest) -> None:
        """Hear that a job has got its shape: what it runs may depend on it."""

    async def home(self, one: Guest, room: Room, found: dict[str, Any]) -> None:
        """Bring home what a job has left."""

    async def logs(self, some: Sequence[tuple[Guest, Room]]) -> None:
        """Bring home what jobs have written to their two streams so far."""

    async def leave(self, one: Guest) -> None:
        """Give up what was held for a job."""


class Homing:
    """Brings home what jobs leave, however often the way is cut."""

    def __init__(self, remote: Remote, house: House, data: Data, telling: Telling) -> None:
        """Take the site, who is there, who carries, and who tells people."""
        self._remote = remote
        self._house = house
        self._data = data
        self._telling = telling

    async def close(self, one: Guest, room: Room, end: End) -> retry.AttemptEnd:
        """Bring home what a job left, and say what its end means."""
        verdict = judge(one, end, self._house.stops.get(one.attempt, ""))
        if end.evidence is None:
            return verdict
        work = self._home(one, room, end.evidence, verdict)
        if (found := await self._house.while_wanted(one, work)) is not None:
            return found
        return self._called_off(one, verdict)

    def _called_off(self, one: Guest, verdict: retry.AttemptEnd) -> retry.AttemptEnd:
        """Say what it means that nobody wants the results of a job any more."""
        if not verdict.ok:
            return verdict
        words = self._house.stops[one.attempt]
        return msgspec.structs.replace(
            verdict, ok=False, stopped=True, message=words, cause=outcome.Cause.STOPPED
        )

    async def _home(
        self, one: Guest, room: Room, evidence: dict[str, Any], verdict: retry.AttemptEnd
    ) -> retry.AttemptEnd:
        while True:
            try:
                await self._remote.ready()
                await self._fetch(one, room, evidence, verdict)
            except errors.Unavailable as error:
                if one.attempt in self._house.stops:
                    return self._called_off(one, verdict)
                await self._telling.say([one.attempt], f"its results wait: {error}")
                await asyncio.sleep(_AGAIN_S)
            except (errors.PilotageError, OSError, LookupError, TypeError, ValueError) as error:
                # Also because of what the site says of them, which may be anything.
                message = f"its results cannot be brought back: {error}"
                _log.warning("job %s: %s", one.key, message)
                if not verdict.ok:
                    return verdict
                return msgspec.structs.replace(
                    verdict, ok=False, message=message, cause=outcome.Cause.OUTPUT
                )
            else:
                return verdict

    async def _fetch(
        self, one: Guest, room: Room, evidence: dict[str, Any], verdict: retry.AttemptEnd
    ) -> None:
        await self._data.logs([(one, room)])
        left = evidence.get("outputs") or {}
        if verdict.ok and not verdict.missing and await self._data.leaves(one, left):
            await self._telling.progress([one.attempt], State.STAGING_OUT)
            crash.point("site.staging_out")
            await self._data.home(one, room, left)
            crash.point("site.home")
