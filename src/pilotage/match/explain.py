"""Why a job does not run, why it still does, or how it ended: facts come in, sentences go out."""

from __future__ import annotations

import msgspec

from pilotage import units
from pilotage.job.model import Attempt, Job, State
from pilotage.match import fit
from pilotage.match.model import Offer

_FEW = 5
_RETRY = (State.FAILED, State.CANCELLED, State.REJECTED)
_ENDED = {
    State.DONE: "was done",
    State.FAILED: "failed",
    State.CANCELLED: "was cancelled",
    State.REJECTED: "was rejected",
}


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job and of what surrounds it."""

    #: The present, in seconds since 1970.
    now: float
    #: The job.
    job: Job
    #: Whether a process runs the project.
    running: bool
    #: Why the store cannot be written; empty when it can.
    trouble: str = ""
    #: Jobs that it waits for, with their states; an empty state means that the job is forgotten.
    before: tuple[tuple[int, str], ...] = ()
    #: Queued jobs that come first.
    ahead: int = 0
    #: Running jobs with the same limit key.
    holders: tuple[int, ...] = ()
    #: What the place to run has, in all and free now.
    offer: Offer | None = None
    #: Its last attempt.
    attempt: Attempt | None = None
    #: What a person asked for while it ran: '', 'cancel' or 'hold'.
    asked: str = ""
    #: The last line that it wrote to standard error.
    last_words: str = ""


class Reason(msgspec.Struct, frozen=True):
    """One thing that stands in the way, or that is so."""

    #: In a few words.
    text: str
    #: The values behind it.
    detail: str = ""


class Explanation(msgspec.Struct, frozen=True):
    """An answer to the question why."""

    #: The state of things in one sentence.
    headline: str
    #: What stands in the way, the most important first.
    reasons: tuple[Reason, ...] = ()
    #: What a person can do.
    suggestion: str = ""


def explain(facts: Facts) -> Explanation:
    """Say why a job is where it is, and what would change that."""
    job = facts.job
    match job.state:
        case State.WAITING:
            found = _waiting(facts)
        case State.HELD:
            found = _held(job)
        case State.QUEUED | State.READY:
            found = _queued(facts)
        case State.RUNNING:
            found = _running(facts)
        case State.STAGING_IN | State.SUBMITTED | State.STAGING_OUT:
            reason = (Reason(job.reason),) if job.reason else ()
            found = Explanation(f"job {job.id} is {job.state.replace('_', ' ')}", reason)
        case State.DONE | State.FAILED | State.CANCELLED | State.REJECTED:
            found = _ended(facts)
    return _without_runner(facts, found)


def _without_runner(facts: Facts, found: Explanation) -> Explanation:
    """Put what stops all jobs before what stops this one."""
    if facts.job.state in {State.DONE, *_RETRY, State.HELD}:
        return found
    first: list[Reason] = []
    suggestion = found.suggestion
    if facts.trouble:
        first.append(Reason("the store cannot be written", facts.trouble))
        suggestion = "make room or mend the permissions; work goes on by itself"
    if not facts.running:
        first.append(Reason("nothing runs this project now"))
        suggestion = "start it: `pilotage up`"
    return Explanation(found.headline, (*first, *found.reasons), suggestion)


def _waiting(facts: Facts) -> Explanation:
    left = [(job, state or "forgotten") for job, state in facts.before if state != State.DONE]
    reasons = [Reason(f"job {job} is {state}") for job, state in left[:_FEW]]
    if len(left) > _FEW:
        reasons.append(Reason(f"and {len(left) - _FEW} more"))
    stuck = [job for job, state in left if state in {State.HELD, "forgotten"}]
    suggestion = ""
    if left:
        suggestion = f"`pilotage explain {left[0][0]}` says why that one has not ended"
    if stuck:
        suggestion = f"`pilotage release {stuck[0]}` lets that one go on"
    return Explanation(
        f"job {facts.job.id} waits for {_jobs(len(left))}", tuple(reasons), suggestion
    )


def _held(job: Job) -> Explanation:
    return Explanation(
        f"job {job.id} is held",
        (Reason(job.reason or "no reason was given"),),
        f"`pilotage release {job.id}` lets it go on, `pilotage cancel {job.id}` calls it off",
    )


def _queued(facts: Facts) -> Explanation:
    job = facts.job
    reasons = [Reason(job.reason)] if job.reason else []
    suggestion = ""
    if facts.offer is not None:
        verdict = fit.fit(job.spec.resources, facts.offer)
        if not verdict.ever:
            return Explanation(
                f"job {job.id} is queued, and can never start here",
                tuple(Reason("it does not fit", why) for why in verdict.reasons),
                f"`pilotage cancel {job.id}`, then submit it with less; "
                "or give the site more in `pilotage.toml`",
            )
        reasons += [Reason("it does not fit now", why) for why in verdict.reasons]
    if job.not_before > facts.now:
        wait = units.for_people(job.not_before - facts.now)
        reasons.append(Reason("it may not start yet", f"it may in {wait}"))
    reasons += _limit(facts)
    if facts.ahead:
        reasons.append(Reason(f"{_jobs(facts.ahead)} ahead of it in the queue"))
        suggestion = "jobs with a higher `--priority` start first"
    headline = f"job {job.id} is queued"
    if not reasons and facts.running:
        headline += ", and nothing stands in its way: it starts at once"
    return Explanation(headline, tuple(reasons), suggestion)


def _limit(facts: Facts) -> list[Reason]:
    key, _, most = facts.job.limit_key.rpartition(":")
    if not key or len(facts.holders) < int(most):
        return []
    held = ", ".join(f"job {one}" for one in facts.holders[:_FEW])
    more = f" and {len(facts.holders) - _FEW} more" if len(facts.holders) > _FEW else ""
    return [Reason(f"at most {most} with the key `{key}` may run at once", f"{held}{more} run now")]


def _running(facts: Facts) -> Explanation:
    job, attempt = facts.job, facts.attempt
    if not facts.running:
        what = "what became of it is found out at the next start"
        return Explanation(f"job {job.id} ran when the project was last run", (Reason(what),))
    began = job.started or facts.now
    took = max(0.0, facts.now - began)
    reasons = []
    if job.spec.resources.time:
        share = f"{100 * took / job.spec.resources.time:.0f} %"
        limit = units.for_people(job.spec.resources.time)
        reasons.append(
            Reason(f"{share} of its time is used", f"{units.for_people(took)} of {limit}")
        )
    if attempt is not None and attempt.pid:
        reasons.append(Reason(f"it is process {attempt.pid}", f"attempt {attempt.number}"))
    if facts.asked:
        words = "cancelled" if facts.asked == "cancel" else "held"
        reasons.append(Reason(f"it is being ended, and will be {words}"))
    where = facts.offer.site if facts.offer else "local"
    return Explanation(
        f"job {job.id} has been running at {where} for {units.for_people(took)}",
        tuple(reasons),
        f"`pilotage logs -f {job.id}` shows what it writes",
    )


def _ended(facts: Facts) -> Explanation:
    job, attempt = facts.job, facts.attempt
    ago = units.for_people(max(0.0, facts.now - (job.ended or facts.now)))
    reasons = [Reason(job.reason)] if job.reason else []
    if attempt is not None and attempt.wall is not None:
        used = f"{units.for_people(attempt.wall)} on attempt {attempt.number}"
        reasons.append(Reason("it ran", used))
    if facts.last_words and job.state is not State.DONE:
        reasons.append(Reason("the last line of its stderr", facts.last_words))
    suggestion = f"`pilotage logs {job.id}` shows what it wrote"
    if job.state in _RETRY and attempt is not None:
        suggestion = (
            f"`pilotage logs {job.id} --stderr` shows what it wrote, "
            f"`pilotage retry {job.id}` tries it again"
        )
    elif attempt is None:
        suggestion = f"`pilotage retry {job.id}` queues it again"
    return Explanation(f"job {job.id} {_ENDED[job.state]} {ago} ago", tuple(reasons), suggestion)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
