"""Jobs that are workflows: the flow of one begins with it, and both end in one transaction.

No place runs such a job, so the matchmaker sets it aside; its steps are jobs like all others.
"""

from __future__ import annotations

import functools
import logging

import anyio
import msgspec
from anyio.to_thread import run_sync

from pilotage.base import crash, errors
from pilotage.base.clock import dice
from pilotage.base.owner import me
from pilotage.base.wakeup import Wakeup, patience
from pilotage.flow import moves, read
from pilotage.flow.model import FINAL, Flow, NewFlow, job_key
from pilotage.flow.moves import end_job
from pilotage.flow.rerun import rerun
from pilotage.job import moves as job_moves
from pilotage.job import records, retry, template
from pilotage.job.model import Job, State, Workflow
from pilotage.job.outcome import Cause
from pilotage.job.retry import Next
from pilotage.project.folder import ProjectFolder
from pilotage.run import launch
from pilotage.run.local import JobListener
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.flow")
#: The prefix of the mark of attempts that are flows, before the number of the flow.
MARK = "flow:"
#: The least seconds between two looks at the store.
_GLANCE_S = 0.02
#: Seconds between retries while the store cannot be written.
_AGAIN_S = 1.0
#: Flows that begin in one transaction.
_AT_ONCE = 100


class WorkflowJobs:
    """Starts the workflows of queued jobs, and cancels those whose jobs are cancelled or held."""

    def __init__(
        self, project: ProjectFolder, writer: Writer, reader: Db, listener: JobListener,
        queued: set[int], bell: Wakeup,
    ) -> None:  # fmt: skip
        """Take the queued jobs, a set that the queue adds to, and the bell that it rings then."""
        self._project, self._writer, self._reader = project, writer, reader
        self._listener, self._queued, self._bell = listener, queued, bell
        self._now = project.clock.now
        #: Jobs whose flows run, with their rules.
        self._live: dict[int, str] = {}

    async def run(self) -> None:
        """Begin flows until cancelled."""
        for row in self._reader.rows("flow_jobs_live"):
            self._began(job_moves.Claim(*row))
        # Each commit may be the end of a flow, or the request of a person.
        with self._writer.telling(self._bell.set):
            while True:
                try:
                    due = await self._step(self._reader)
                except errors.StoreUnavailable as error:
                    _log.error("flows of rules: %s", error)
                    due = self._now() + _AGAIN_S
                if not (self._live or self._queued):
                    await self._bell.wait()
                elif due is None or due > self._now():
                    await self._bell.wait(patience(due, self._now()))
                    await anyio.sleep(_GLANCE_S)

    async def _step(self, db: Db) -> float | None:
        """Process ends, requests and queued jobs; return when the next job may begin."""
        for job in [one for one in self._live if not _runs(db, one)]:
            self._listener.ended(self._live.pop(job), job)
        for job, flow, asked in db.rows("flow_jobs_asked") if self._live else ():
            words = f"job {job} was {'held' if asked == 'hold' else 'cancelled'} by a person"
            cancel = functools.partial(moves.cancel, flow=flow, reason=words, now=self._now())
            await self._writer.run(cancel)
        due, later = [], []
        for number in sorted(self._queued):
            state, not_before = db.row("flow_job_due", id=number) or ("", 0.0)
            if state != State.QUEUED:
                self._queued.discard(number)
            elif not_before > self._now():
                later.append(not_before)
            else:
                due.append(number)
        if due:
            await self._begin(db, due[:_AT_ONCE])
        return self._now() if len(due) > _AT_ONCE else min(later, default=None)

    async def _begin(self, db: Db, numbers: list[int]) -> None:
        """Begin the flows of jobs, as far as their limits allow."""
        jobs = [records.get(db, number) for number in numbers]
        objections = await run_sync(
            lambda: [launch.objection(one.binding, one.spec.on_change) for one in jobs]
        )
        crash.point("flow.begin")
        place = ProjectPaths(str(self._project.root), str(self._project.state / "jobs"))

        def step(db: Db) -> list[job_moves.Claim]:
            made = (
                begin(db, job, place, why, self._now())
                for job, why in zip(jobs, objections, strict=True)
            )
            return [claim for claim in made if claim is not None]

        for claim in await self._writer.run(step):
            self._queued.discard(claim.job)
            self._began(claim)
        crash.point("flow.begun")

    def _began(self, claim: job_moves.Claim) -> None:
        self._live[claim.job] = claim.rule
        self._listener.started(claim, records.read_binding(claim.binding), [])


def _runs(db: Db, job: int) -> bool:
    return (db.row("end_facts", id=job) or ("", 0))[0] in job_moves.AWAY


class ProjectPaths(msgspec.Struct, frozen=True):
    """Paths that the jobs of a project have in common."""

    #: The folder that relative paths start from.
    base: str
    #: The parent of the folders of attempts.
    folder: str


def begin(
    db: Db, job: Job, place: ProjectPaths, objection: str, now: float
) -> job_moves.Claim | None:  # fmt: skip
    """Claim a job and start its flow, or resume the one that it has.

    Nothing is returned for a job that is no longer queued, must wait, or is cancelled by an
    `objection`.
    """
    if objection:
        job_moves.move(
            db, job.id, job.attempt, State.QUEUED, Next(State.CANCELLED, objection), now=now
        )
        return None
    if _full(db, job.limit_key):
        return None
    claim = job_moves.claim(db, {job.id: MARK}, place.folder, now).get(job.id)
    if claim is None:
        return None
    try:
        with db.savepoint():
            flow = _begin(db, job, place, now)
    except (errors.PilotageError, msgspec.ValidationError) as error:
        end = retry.AttemptEnd(
            ok=False, message=f"its flow cannot begin: {error}", cause=Cause.STEP
        )
        job_moves.finish(db, job.id, claim.attempt, job.spec, end, now=now, dice=dice(job.id))
        return claim
    job_moves.hand_over(db, [(job.id, claim.attempt)], f"{MARK}{flow}")
    if (db.value("flow_state", flow=flow) or "") in FINAL:
        end_job(db, job.id, flow, now)
    return claim


def _full(db: Db, limit_key: str) -> bool:
    """Return whether the limit of a key is reached."""
    most = limit_key.rpartition(":")[2]
    return bool(most) and len(db.rows("job_holding_limit", key=limit_key)) >= int(most)


def _begin(db: Db, job: Job, place: ProjectPaths, now: float) -> int:
    """Start the flow of a job, or rerun what failed of it; return its number."""
    known = db.row("flow_by_key", key=job_key(job.id))
    if known is None:
        new = NewFlow(
            flow=definition(job, place.base), key=job_key(job.id), owner=job.owner or me(),
            source="rule", tag=job.tag,
        )  # fmt: skip
        return moves.submit(db, new, now)
    flow = int(known[0])
    if db.value("flow_state", flow=flow) in ("failed", "cancelled"):
        rerun(db, flow, [], now)
    return flow


def definition(job: Job, base: str) -> Flow:
    """Return the flow of a job, with the values of its parameters from the event."""
    if not isinstance(job.spec.recipe, Workflow):
        raise errors.BadFlow(f"job {job.id} is no workflow")
    keywords = template.keywords(job.binding, job.spec.base or base, job.id)
    flow = msgspec.convert(job.spec.recipe.flow, Flow)
    return read.given(flow, template.parameters(job.spec, job.binding, keywords))
