"""Facts about a job that explanations are made from, and the explanation."""

from __future__ import annotations

import msgspec

from pilotage.job.model import Attempt, Job
from pilotage.match.prospect import Prospect
from pilotage.match.sites import Objection


class ExplainReason(msgspec.Struct, frozen=True):
    """One reason."""

    #: In a few words.
    text: str
    #: The values behind it.
    detail: str = ""


class ReservedFor(msgspec.Struct, frozen=True):
    """An offer that is kept free for a job that has waited long."""

    #: The pilot, in words.
    where: str
    #: When there will be room, as far as one can tell.
    at: float


class QuotaUse(msgspec.Struct, frozen=True):
    """A bound on cores at once that leaves no room for a job."""

    #: The user or group.
    owner: str
    most: int
    used: int


class LimitUse(msgspec.Struct, frozen=True):
    """Queued jobs that come first."""

    #: Of the same owner, by priority and age.
    own: int = 0
    #: Of owners who have had less of their share.
    others: int = 0


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a job and the state of places, limits and pools."""

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
    ahead: LimitUse = LimitUse()
    #: Running jobs with the same limit key.
    holders: tuple[int, ...] = ()
    #: How it and the offers go together.
    prospect: Prospect | None = None
    #: Why the site that it names does not take it; nothing if it does.
    site: Objection | None = None
    #: Pilots that were asked for and have not come yet.
    coming: int = 0
    #: What pools do for it, the best first; and whether one of them will, by itself.
    pools: tuple[ExplainReason, ...] = ()
    hope: bool = False
    #: What a person can do about the first of them.
    advice: str = ""
    #: The offer that is kept for it.
    kept: ReservedFor | None = None
    #: The quota that it would exceed.
    quota: QuotaUse | None = None
    #: Where it runs.
    where: str = "local"
    #: Its last attempt.
    attempt: Attempt | None = None
    #: The flow that it is, if it is one and has begun.
    flow: int = 0
    #: What a person asked for while it ran: '', 'cancel' or 'hold'.
    asked: str = ""
    #: The last line that it wrote to standard error.
    last_words: str = ""


class Explanation(msgspec.Struct, frozen=True):
    """An answer to the question why."""

    #: The state of things in one sentence.
    headline: str
    #: What stands in the way, the most important first.
    reasons: tuple[ExplainReason, ...] = ()
    #: What a person can do.
    suggestion: str = ""
