"""Why a queued job does not start: places, limits, quotas and its position in the queue."""

from __future__ import annotations

from pilotage.base import units
from pilotage.match import sites
from pilotage.match.facts import ExplainReason, Explanation, JobFacts
from pilotage.match.prospect import BLOCKED, BOOTING, DRAINING, KEPT, LOST, SILENT, Idle, Prospect
from pilotage.match.sites import Objection
from pilotage.match.why import Clause, RequirementChange

_FEW = 5
NO_PLACES = "there are no pilots, and this machine runs no jobs"
ENROL = (
    "`pilotage token new enrol` makes a token for pilots, which `pilotage pilot run` "
    "takes; `pilotage up` runs jobs on this machine"
)
#: What is said of one offer and of several, and what a person can do.
_IDLE = {
    KEPT: ("keeps its room", "keep their room", "it starts after the one that waits for longer"),
    BOOTING: ("checks its node", "check their nodes", "they take work in a moment"),
    DRAINING: ("takes no more work", "take no more work", "start other pilots"),
    SILENT: ("is silent", "are silent", "check that these nodes reach this hub"),
    BLOCKED: ("is kept from work", "are kept from work", "repair the nodes or start other pilots"),
    LOST: ("was lost", "were lost", "start pilots again"),
}  # fmt: skip


def explain(facts: JobFacts) -> Explanation:
    """Return why a queued job does not start, and what would change that."""
    found = facts.prospect
    if found is None or found.ever or facts.kept:
        return _in_line(facts, found)
    if facts.site is not None and not facts.hope:
        return _site(facts, facts.site)
    if facts.hope and (found.no_offers or found.never):
        return _hoped(facts)
    if found.no_offers:
        return _nobody(facts)
    return _never(facts, found) if found.never else _idle(facts, found)


def brief(found: Prospect) -> str:
    """Return why a job finds no room; nothing if there is some."""
    if found.no_offers:
        return NO_PLACES
    if found.never:
        clauses = [one for one in found.why.clauses if one.failing == one.offers]
        return "; ".join(one.words for one in (clauses or found.why.clauses)[:_FEW])
    if not found.ever:
        return "; ".join(_idle_words(one) for one in found.idle)
    return "; ".join(found.short)


def advice(changes: tuple[RequirementChange, ...]) -> str:
    """Name the least change with which some offer would do, and the one that helps most."""
    if not changes:
        return ""
    chosen = [changes[0], changes[-1]] if len(changes) > 1 else [changes[0]]
    words = (f"{one.words} ({_count(one.offers, 'offer')} would do then)" for one in chosen)
    return ", or ".join(words)


def _site(facts: JobFacts, found: Objection) -> Explanation:
    """Return why the site that a job names does not take it."""
    headline = f"job {facts.job.id} is queued, and its site does not take it now"
    if found.final:
        headline = f"job {facts.job.id} is queued, and its site will never take it"
    told = (ExplainReason(sites.message(found, facts.now)), *facts.pools[:_FEW], *_coming(facts))
    suggestion = sites.hint(found)
    if found.final:
        suggestion += f"; `pilotage cancel {facts.job.id}`, then submit it again"
    return Explanation(headline, told, facts.advice or suggestion)


def _hoped(facts: JobFacts) -> Explanation:
    """Return which pool will have a pilot for it."""
    headline = f"job {facts.job.id} is queued, and waits for a pilot of a pool"
    return Explanation(headline, facts.pools[:_FEW], facts.advice)


def _nobody(facts: JobFacts) -> Explanation:
    headline = f"job {facts.job.id} is queued, and there is nothing that could run it"
    reasons = (ExplainReason(NO_PLACES), *facts.pools[:_FEW], *_coming(facts))
    return Explanation(headline, reasons, facts.advice or ENROL)


def _never(facts: JobFacts, found: Prospect) -> Explanation:
    job, why = facts.job, found.why
    reasons = (*map(_clause, why.clauses[:_FEW]), *facts.pools[:_FEW], *_coming(facts))
    cancel = f"`pilotage cancel {job.id}`, then submit it again; or start pilots that have it"
    suggestion = facts.advice or "; ".join(filter(None, (advice(why.changes), cancel)))
    headline = f"job {job.id} is queued, and can never start on what is offered now"
    return Explanation(headline, reasons, suggestion)


def _idle(facts: JobFacts, found: Prospect) -> Explanation:
    reasons = [ExplainReason(_idle_words(one)) for one in reversed(found.idle)]
    headline = f"job {facts.job.id} is queued, and all offers that would do take no work now"
    others = (_clause(one) for one in found.why.clauses[:_FEW])
    suggestion = _IDLE[found.idle[0].kind][2]
    told = (*reasons, *others, *facts.pools[:_FEW], *_coming(facts))
    return Explanation(headline, told, suggestion)


def _in_line(facts: JobFacts, found: Prospect | None) -> Explanation:
    job = facts.job
    reasons = [ExplainReason(job.reason)] if job.reason else []
    if facts.kept:
        wait = units.for_people(max(0.0, facts.kept.at - facts.now))
        reasons.append(
            ExplainReason(f"{facts.kept.where} is kept for it", f"there is room in about {wait}")
        )
    if found is not None and not found.now:
        reasons += _no_room(found) + list(facts.pools[:_FEW])
    if job.not_before > facts.now:
        wait = units.for_people(job.not_before - facts.now)
        reasons.append(ExplainReason("it may not start yet", f"it may in {wait}"))
    reasons += _limit(facts) + _quota(facts)
    ahead, suggestion = _ahead(facts)
    reasons += ahead
    headline = f"job {job.id} is queued"
    if not reasons and facts.running:
        headline += ", and nothing stands in its way: it starts at once"
    return Explanation(headline, tuple(reasons), suggestion)


def _no_room(found: Prospect) -> list[ExplainReason]:
    """Return what is short where it could run, and why it could not run elsewhere."""
    if not found.ever:
        return []
    when = "when it is free" if found.ever == 1 else "when they are free"
    text = f"it fits nowhere now; {_count(found.ever, 'offer')} would do {when}"
    clauses = [_clause(one) for one in found.why.clauses[:_FEW]]
    idle = [ExplainReason(_idle_words(one)) for one in found.idle]
    return [ExplainReason(text, "; ".join(found.short)), *clauses, *idle]


def _limit(facts: JobFacts) -> list[ExplainReason]:
    key, _, most = facts.job.limit_key.rpartition(":")
    if not key or len(facts.holders) < int(most):
        return []
    held = ", ".join(f"job {one}" for one in facts.holders[:_FEW])
    more = f" and {len(facts.holders) - _FEW} more" if len(facts.holders) > _FEW else ""
    run = "runs" if len(facts.holders) == 1 else "run"
    text = f"at most {most} with the key `{key}` may run at once"
    return [ExplainReason(text, f"{held}{more} {run} now")]


def _quota(facts: JobFacts) -> list[ExplainReason]:
    quota, needs = facts.quota, facts.job.spec.resources.cpus
    if quota is None:
        return []
    cores = f"it needs {_count(needs, 'core')}, and {_count(quota.used, 'core')} of {quota.most} "
    never = "; the quota is less than it needs" if needs > quota.most else ""
    return [
        ExplainReason(f"the quota of {quota.owner} leaves no room", f"{cores}are in use{never}")
    ]


def _ahead(facts: JobFacts) -> tuple[list[ExplainReason], str]:
    own, others = facts.ahead.own, facts.ahead.others
    reasons, suggestion = [], ""
    if others:
        text = f"{_count(others, 'job')} of owners who have had less of their share come first"
        reasons.append(ExplainReason(text.replace("come", "comes") if others == 1 else text))
        suggestion = "`pilotage share` shows who has used how much"
    if own:
        reasons.append(ExplainReason(f"{_count(own, 'job')} ahead of it in the queue"))
        suggestion = "jobs with a higher `--priority` start first"
    return reasons, suggestion


def _coming(facts: JobFacts) -> list[ExplainReason]:
    if not facts.coming:
        return []
    return [ExplainReason(f"{_count(facts.coming, 'pilot')} asked for, not here yet")]


def _clause(one: Clause) -> ExplainReason:
    return ExplainReason(one.title, one.verdict)


def _idle_words(one: Idle) -> str:
    verb = _IDLE[one.kind][one.count > 1]
    said = f": {one.words}" if one.words else ""
    return f"{_count(one.count, 'offer')} that would do {verb}{said}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
