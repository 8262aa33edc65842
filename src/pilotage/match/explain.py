"""Why a job waits, still runs, or ended: facts come in, sentences go out."""

from __future__ import annotations

from pilotage.base import units
from pilotage.job import machine
from pilotage.job.model import Job, State
from pilotage.match import queued
from pilotage.match.facts import ExplainReason, Explanation, JobFacts

_FEW = 5
_RETRY = (State.FAILED, State.CANCELLED, State.REJECTED)
_ENDED = {
    State.DONE: "was done",
    State.FAILED: "failed",
    State.CANCELLED: "was cancelled",
    State.REJECTED: "was rejected",
}


def explain(facts: JobFacts) -> Explanation:
    """Return why a job is where it is, and what would change that."""
    job = facts.job
    match job.state:
        case State.WAITING:
            found = _waiting(facts)
        case State.HELD:
            found = _held(job)
        case State.QUEUED:
            found = queued.explain(facts)
        case State.RUNNING:
            found = _running(facts)
        case State.STAGING_IN | State.READY | State.SUBMITTED | State.STAGING_OUT:
            found = _under_way(facts)
        case State.DONE | State.FAILED | State.CANCELLED | State.REJECTED:
            found = _ended(facts)
    return _without_runner(facts, found)


def _under_way(facts: JobFacts) -> Explanation:
    """Return where a job is on its way to a site, there, or home."""
    job = facts.job
    reasons = [ExplainReason(machine.FACTS[job.state].sentence)]
    if facts.where not in {"", "local"}:
        reasons.append(ExplainReason(f"at {facts.where}"))
    if job.reason and job.reason not in facts.where:
        reasons.append(ExplainReason(job.reason))
    return Explanation(f"job {job.id} is {job.state.replace('_', ' ')}", tuple(reasons))


def _without_runner(facts: JobFacts, found: Explanation) -> Explanation:
    """Put what stops all jobs before what stops this one."""
    if facts.job.state in {State.DONE, *_RETRY, State.HELD}:
        return found
    first: list[ExplainReason] = []
    suggestion = found.suggestion
    if facts.trouble:
        first.append(ExplainReason("the store cannot be written", facts.trouble))
        suggestion = "free space or correct the permissions; work then continues"
    if not facts.running:
        first.append(ExplainReason("nothing runs this project now"))
        if facts.prospect is None or not facts.prospect.never:
            suggestion = "start it: `pilotage up`"
    return Explanation(found.headline, (*first, *found.reasons), suggestion)


def _waiting(facts: JobFacts) -> Explanation:
    left = [(job, state or "forgotten") for job, state in facts.before if state != State.DONE]
    reasons = [ExplainReason(f"job {job} is {state}") for job, state in left[:_FEW]]
    if len(left) > _FEW:
        reasons.append(ExplainReason(f"and {len(left) - _FEW} more"))
    stuck = [job for job, state in left if state in {State.HELD, "forgotten"}]
    suggestion = ""
    if left:
        suggestion = f"`pilotage explain {left[0][0]}` says why that one has not ended"
    if stuck:
        suggestion = f"`pilotage release {stuck[0]}` continues it"
    return Explanation(
        f"job {facts.job.id} waits for {_jobs(len(left))}", tuple(reasons), suggestion
    )


def _held(job: Job) -> Explanation:
    return Explanation(
        f"job {job.id} is held",
        (ExplainReason(job.reason or "no reason was given"),),
        f"`pilotage release {job.id}` releases it, `pilotage cancel {job.id}` cancels it",
    )


def _running(facts: JobFacts) -> Explanation:
    job, attempt = facts.job, facts.attempt
    if not facts.running:
        what = "its end is determined at the next start"
        return Explanation(
            f"job {job.id} ran when the project was last run", (ExplainReason(what),)
        )
    began = job.started or facts.now
    took = max(0.0, facts.now - began)
    reasons = []
    if facts.flow:
        asked = {"cancel": "cancelled", "hold": "held"}.get(facts.asked, "")
        return Explanation(
            f"job {job.id} is flow {facts.flow}, which has been running for "
            f"{units.for_people(took)}",
            (ExplainReason(f"it is being ended, and will be {asked}"),) if asked else (),
            f"`pilotage flow explain {facts.flow}` says what its steps wait for",
        )
    if job.spec.resources.time:
        share = f"{100 * took / job.spec.resources.time:.0f} %"
        limit = units.for_people(job.spec.resources.time)
        reasons.append(
            ExplainReason(f"{share} of its time is used", f"{units.for_people(took)} of {limit}")
        )
    if attempt is not None and attempt.pid:
        reasons.append(ExplainReason(f"it is process {attempt.pid}", f"attempt {attempt.number}"))
    if facts.asked:
        words = "cancelled" if facts.asked == "cancel" else "held"
        reasons.append(ExplainReason(f"it is being ended, and will be {words}"))
    return Explanation(
        f"job {job.id} has been running at {facts.where} for {units.for_people(took)}",
        tuple(reasons),
        f"`pilotage logs -f {job.id}` shows what it writes",
    )


def _ended(facts: JobFacts) -> Explanation:
    job, attempt = facts.job, facts.attempt
    ago = units.for_people(max(0.0, facts.now - (job.ended or facts.now)))
    reasons = [ExplainReason(job.reason)] if job.reason else []
    if attempt is not None and attempt.wall is not None:
        used = f"{units.for_people(attempt.wall)} on attempt {attempt.number}"
        reasons.append(ExplainReason("it ran", used))
    if facts.last_words and job.state is not State.DONE:
        reasons.append(ExplainReason("the last line of its stderr", facts.last_words))
    suggestion = f"`pilotage logs {job.id}` shows what it wrote"
    if facts.flow:
        suggestion = f"`pilotage flow show {facts.flow}` shows its steps"
        if job.state in _RETRY:
            suggestion += f", `pilotage retry {job.id}` runs what failed again"
    elif job.state in _RETRY and attempt is not None:
        suggestion = (
            f"`pilotage logs {job.id} --stderr` shows what it wrote, "
            f"`pilotage retry {job.id}` tries it again"
        )
    elif attempt is None:
        suggestion = f"`pilotage retry {job.id}` queues it again"
    return Explanation(f"job {job.id} {_ENDED[job.state]} {ago} ago", tuple(reasons), suggestion)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
