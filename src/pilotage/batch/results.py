"""Ends of batch jobs: classified by their evidence or the scheduler, and their results fetched.

Standard output and error are fetched while jobs run.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import anyio.to_thread
import msgspec

from pilotage.base import crash, errors
from pilotage.batch import job
from pilotage.batch.connection import SiteConnection
from pilotage.batch.job import BatchJob, ItemFolder
from pilotage.batch.orders import HeldJobs, ProgressWriter
from pilotage.batch.submission import TaskEnd
from pilotage.batch.system.model import BatchItem, EndCause
from pilotage.job import moves, outcome, retry
from pilotage.job.model import State
from pilotage.run import outcome as run_outcome
from pilotage.run.model import Ending
from pilotage.run.outcome import classify

#: Messages for ends that the job itself caused, as the scheduler reports them.
OWN = {
    EndCause.MEMORY: "it used more memory than it had asked for",
    EndCause.TIMEOUT: "it used up its wall time",
}
#: Messages for ends that the job did not cause: it is retried.
LOST = {
    EndCause.NODE: "its node failed",
    EndCause.PREEMPTED: "its place was given to another job",
    EndCause.SIGNALLED: "it was killed from outside",
    EndCause.UNKNOWN: "the batch system does not say how it ended",
}
#: What the scheduler calls an end, and what that is for us; any other is a loss.
_CAUSES = {
    EndCause.MEMORY: outcome.Cause.MEMORY,
    EndCause.TIMEOUT: outcome.Cause.TIMEOUT,
    EndCause.NODE: outcome.Cause.NODE,
    EndCause.PREEMPTED: outcome.Cause.PREEMPTED,
    EndCause.SIGNALLED: outcome.Cause.KILLED,
    EndCause.CANCELLED: outcome.Cause.CANCELLED,
}
#: What the scheduler may tell of an end from outside of which there is evidence.
_TOLD = {*OWN, EndCause.NODE, EndCause.PREEMPTED, EndCause.CANCELLED}


def judge(one: BatchJob, end: TaskEnd, stopping: str) -> retry.AttemptEnd:
    """Return what the end of a batch job means for its job; `stopping` is why it was cancelled."""
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


def _by_evidence(one: BatchJob, end: TaskEnd, stopping: str) -> retry.AttemptEnd:
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
        # Not stopped by us: the batch system took its node away.
        return msgspec.structs.replace(judged, stopped=False, lost=True, cause=outcome.Cause.KILLED)
    return judged


def _by_scheduler(item: BatchItem, never: str) -> retry.AttemptEnd:
    cause = item.cause or EndCause.UNKNOWN
    said = f" ({item.words})" if item.words else ""
    if cause is EndCause.CANCELLED:
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


class JobStaging(Protocol):
    """Stages inputs of jobs to the site, and their outputs back."""

    @property
    def apart(self) -> bool:
        """Whether jobs go to the batch system as soon as their own data is there."""
        ...

    def brings(self, one: BatchJob) -> bool:
        """Return whether anything must be at the site before a job can be submitted."""
        ...

    async def leaves(self, one: BatchJob, found: dict[str, Any]) -> bool:
        """Return whether anything must be done with what a job has left."""
        ...

    async def bring(self, one: BatchJob) -> None:
        """Stage the inputs of a job to the site, and note them in the job."""

    async def shaped(self, one: BatchJob) -> None:
        """Note that a job has got its size: its program may depend on it."""

    async def home(self, one: BatchJob, folders: ItemFolder, found: dict[str, Any]) -> None:
        """Fetch the outputs of a job."""

    async def logs(self, some: Sequence[tuple[BatchJob, ItemFolder]]) -> None:
        """Fetch what jobs have written to their two streams so far."""

    async def leave(self, one: BatchJob) -> None:
        """Give up what was held for a job."""


class ResultFetcher:
    """Fetches the results of jobs, and retries while the site is unreachable."""

    def __init__(
        self, remote: SiteConnection, held: HeldJobs, data: JobStaging, progress: ProgressWriter
    ) -> None:
        """Take the site, its jobs, their data, and where progress is recorded."""
        self._remote = remote
        self._held = held
        self._data = data
        self._progress = progress

    async def close(self, one: BatchJob, folders: ItemFolder, end: TaskEnd) -> retry.AttemptEnd:
        """Fetch the outputs of a job, and return what its end means."""
        verdict = judge(one, end, self._held.stops.get(one.attempt, ""))
        if end.evidence is None:
            return verdict
        work = self._home(one, folders, end.evidence, verdict)
        if (found := await self._held.while_wanted(one, work)) is not None:
            return found
        return self._cancelled(one, verdict)

    def _cancelled(self, one: BatchJob, verdict: retry.AttemptEnd) -> retry.AttemptEnd:
        """Return the end of a job whose results are not wanted any more."""
        if not verdict.ok:
            return verdict
        words = self._held.stops[one.attempt]
        return msgspec.structs.replace(
            verdict, ok=False, stopped=True, message=words, cause=outcome.Cause.STOPPED
        )

    async def _home(
        self,
        one: BatchJob,
        folders: ItemFolder,
        evidence: dict[str, Any],
        verdict: retry.AttemptEnd,
    ) -> retry.AttemptEnd:
        while True:
            try:
                await self._remote.ready()
                await self._fetch(one, folders, evidence, verdict)
            except errors.Unavailable as error:
                if one.attempt in self._held.stops:
                    return self._cancelled(one, verdict)
                await self._progress.say([one.attempt], f"its results wait: {error}")
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
        self,
        one: BatchJob,
        folders: ItemFolder,
        evidence: dict[str, Any],
        verdict: retry.AttemptEnd,
    ) -> None:
        await self._data.logs([(one, folders)])
        left = evidence.get("outputs") or {}
        if verdict.ok and not verdict.missing and await self._data.leaves(one, left):
            await self._progress.progress([one.attempt], State.STAGING_OUT)
            crash.point("site.staging_out")
            await self._data.home(one, folders, left)
            crash.point("site.home")


_STREAMS = ("stdout", "stderr")
#: Bytes of one stream that are fetched, in all and at once.
_MOST = 10 << 20
_AT_ONCE = 1 << 20
#: Jobs whose streams are asked for together.
_TOGETHER = 64


class Streams:
    """Fetches the output of all jobs of a site."""

    def __init__(self, remote: SiteConnection, state: Path) -> None:
        """Keep it with the attempts of the project whose state folder is `state`."""
        self._remote = remote
        self._jobs = str(state / "jobs")

    async def bring(self, some: Sequence[tuple[BatchJob, ItemFolder]]) -> None:
        """Fetch what jobs have written so far."""
        for at in range(0, len(some), _TOGETHER):
            left = list(some[at : at + _TOGETHER])
            while left:
                left = await self._next(left)

    async def _next(
        self, some: list[tuple[BatchJob, ItemFolder]]
    ) -> list[tuple[BatchJob, ItemFolder]]:
        """Bring the next piece of each; return those of which there may be more."""
        streams = [(one, folders, name) for one, folders in some for name in _STREAMS]
        sizes = [_size(self._file(one, name)) for one, _, name in streams]
        most = _AT_ONCE // len(some)
        wanted = [
            [f"{folders.run}/{name}", at, max(0, min(most, _MOST - at))]
            for (_, folders, name), at in zip(streams, sizes, strict=True)
        ]
        tails = (await self._remote.call("tails", files=wanted))["tails"]

        def write() -> list[tuple[BatchJob, ItemFolder]]:
            again = {}
            for (one, folders, name), at, data in zip(streams, sizes, tails, strict=True):
                if data and at < _MOST:
                    run_outcome.write_output(
                        self._jobs, one.claim.job, one.claim.attempt, name, at, data
                    )
                    # On a full disk, to ask again would never end.
                    if _size(self._file(one, name)) >= at + most:
                        again[one.attempt] = (one, folders)
            return list(again.values())

        return await anyio.to_thread.run_sync(write)

    def _file(self, one: BatchJob, name: str) -> str:
        return f"{moves.attempt_dir(self._jobs, one.claim.job, one.claim.attempt)}/{name}"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
