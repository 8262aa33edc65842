"""Submissions to a batch system, and what a listing tells about them (pure functions)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from signal import SIGKILL, SIGTERM
from typing import Any, Protocol

import msgspec

from pilotage.batch.system.model import BatchItem, BatchOrder, EndCause, Phase

#: Listings in a row that must be without something before it counts as gone.
_EMPTY = 2
_ABSENT = 3
#: How long the evidence of an end may take to be seen after the scheduler speaks of it, and how
#: long the scheduler's word may take after evidence that something else ended it, in seconds.
LINGER_S = 15.0
#: After each refusal the next try waits one settle time longer, up to this many.
_LONGEST = 10
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_PART = re.compile(r"[_.][0-9]+$", re.ASCII)


def new_key() -> str:
    """Return a unique name: 15 letters and digits, which every batch system accepts."""
    return "pl" + "".join(secrets.choice(_LETTERS) for _ in range(13))


class ArrayTask(msgspec.Struct):
    """One task of a submission: an attempt of a job, or a pilot."""

    #: Its number in the array.
    place: int
    #: The attempt of a job that it is, or the pilot.
    job: int = 0
    attempt: int = 0
    pilot: int = 0
    #: Whether it has begun, as its own word or the scheduler's says.
    began: bool = False
    #: Listings in a row without it, and the time of the first of them.
    absent: int = 0
    absent_since: float = 0.0
    #: Since when the scheduler calls it over while its evidence is not there; 0 if it does not.
    over_since: float = 0.0
    #: Evidence that something from outside ended it, and since when the scheduler's word about
    #: that is waited for.
    parting: dict[str, Any] | None = None
    parting_since: float = 0.0
    #: The last sign of life of one that no listing shows, and when it was new.
    pulse: int = 0
    pulse_since: float = 0.0
    #: The reason that the batch system gives while it waits there.
    words: str = ""
    #: Whether its end was requested.
    stopping: bool = False
    #: Whether its end has been reported: later messages are ignored.
    over: bool = False


class Submission(msgspec.Struct):
    """One call of a submit command."""

    id: int
    key: str
    batch: str
    order: BatchOrder
    #: Whether the batch system is known to have it.
    known: bool = False
    #: The id that it has there.
    number: str = ""
    tries: int = 1
    works: dict[int, ArrayTask] = {}
    #: When the intent was written down, by the clock of the wall.
    created: float = 0.0
    #: When the batch system was last asked for it, on our clock; 0 before the first time.
    asked: float = 0.0
    #: Whether it is being asked now.
    asking: bool = False
    #: Whether it may have been asked at all, by us or by an earlier process.
    sent: bool = False
    #: Good listings without it since then, and the time of the first of them.
    empty: int = 0
    empty_since: float = 0.0
    #: The last word of the batch system about it.
    words: str = ""
    #: Whether that word was that it can never be accepted.
    final: bool = False
    #: Names that it had in earlier tries, all of which are fenced.
    former: list[str] = []

    @property
    def live(self) -> list[ArrayTask]:
        """The tasks that are not over."""
        return [work for work in self.works.values() if not work.over]

    @property
    def root(self) -> str:
        """The folder of the project at the site, as it was when this was submitted."""
        return self.order.folder.removesuffix(f"/s/{self.key}")

    def say(self, site: str, words: str) -> str:
        """Return where it waits, and the reason if there is one."""
        job = f"{self.batch} job {self.number}" if self.number else f"a {self.batch} job"
        name = f"{job} at {site}" if self.known else ""
        return ": ".join(part for part in (name, words) if part)


class Accepted(msgspec.Struct, frozen=True):
    """The batch system has it."""

    number: str


class NotAccepted(msgspec.Struct, frozen=True):
    """The batch system does not have it and never will: it may be resubmitted, once fenced."""


class ReportedRunning(msgspec.Struct, frozen=True):
    """The scheduler says that it runs."""

    work: ArrayTask
    item: BatchItem


class ReportedOver(msgspec.Struct, frozen=True):
    """The scheduler says that it is over, and its own evidence has not come."""

    work: ArrayTask
    item: BatchItem


class Vanished(msgspec.Struct, frozen=True):
    """It is not listed any more, and nothing tells how it ended."""

    work: ArrayTask


Finding = Accepted | NotAccepted | ReportedRunning | ReportedOver | Vanished


def look(
    one: Submission,
    found: Sequence[BatchItem],
    remembered: Sequence[BatchItem],
    now: float,
    settle: float,
) -> list[Finding]:
    """Return what a good listing, and history where there is one, tell of a submission.

    `now` is when the listing was asked for: what was submitted later cannot be on it.
    """
    if not one.known:
        if listed := [*found, *remembered]:
            return [Accepted(_whole(listed, one.order.count))]
        return [NotAccepted()] if _missing(one, now, settle) else []
    by_place = _latest(found, remembered)
    findings = [_judge(one, work, by_place.get(work.place), now, settle) for work in one.live]
    return [finding for finding in findings if finding is not None]


def _latest(found: Sequence[BatchItem], remembered: Sequence[BatchItem]) -> dict[int, BatchItem]:
    """Choose the item that counts for each place.

    There may be several, if a submit command was heard twice: then all but one have found the claim
    taken and ended at once, so that one which has not ended tells more than one which has.
    """
    by_id = {item.id: item for item in (*remembered, *found)}
    by_place: dict[int, BatchItem] = {}
    for item in by_id.values():
        known = by_place.get(item.index)
        if known is None or _weight(item) > _weight(known):
            by_place[item.index] = item
    return by_place


def _weight(item: BatchItem) -> int:
    if item.phase is not Phase.OVER:
        return 2
    return 0 if item.cause is EndCause.EXITED and not item.exit else 1


def _missing(one: Submission, now: float, settle: float) -> bool:
    """Count a good listing without a submission that is in doubt."""
    if one.asking or not one.asked or now <= one.asked:
        return False
    one.empty += 1
    if one.empty == 1:
        one.empty_since = now
    if one.final:
        return True
    patience = settle * min(one.tries, _LONGEST)
    return one.empty >= _EMPTY and now - one.empty_since >= patience


def _judge(
    one: Submission, work: ArrayTask, item: BatchItem | None, now: float, settle: float
) -> Finding | None:
    if item is None:
        work.over_since = 0.0
        if one.asking or now <= one.asked:
            return None
        work.absent += 1
        if work.absent == 1:
            work.absent_since = now
        enough = work.absent >= _ABSENT and now - work.absent_since >= max(settle, LINGER_S)
        return Vanished(work) if enough or _waited(work, now) else None
    work.absent = 0
    if item.phase is Phase.OVER:
        work.over_since = work.over_since or now
        known = work.parting is not None or now - work.over_since >= LINGER_S
        return ReportedOver(work, item) if known else None
    work.over_since = 0.0
    if _waited(work, now):
        return Vanished(work)
    return ReportedRunning(work, item) if item.phase is Phase.RUNNING and not work.began else None


def _waited(work: ArrayTask, now: float) -> bool:
    """Return whether a scheduler has had its time to say why it ended something."""
    return work.parting is not None and now - work.parting_since >= LINGER_S


def _whole(items: Iterable[BatchItem], count: int) -> str:
    """Name a submission by the first of its parts that is listed."""
    first = min((item.id for item in items), key=lambda one: (len(one), one))
    return _PART.sub("", first) if count > 1 else first


def from_outside(evidence: dict[str, Any]) -> bool:
    """Return whether an end was caused from outside, so that the scheduler can tell more of it."""
    end = evidence.get("end")
    return isinstance(end, dict) and (
        end.get("reason") == "stopped" or end.get("signal") in (SIGKILL, SIGTERM)
    )


def forget_listings(one: Submission) -> None:
    """Reset the counts of listings before it is submitted again."""
    one.asked, one.empty, one.empty_since, one.words, one.final = 0.0, 0, 0.0, "", False
    one.sent = False


class TaskEnd(msgspec.Struct, frozen=True):
    """The end of a task: its own evidence, the scheduler's report, or only its absence."""

    evidence: dict[str, Any] | None = None
    item: BatchItem | None = None
    #: Why it never began and never will; empty if it did or may have.
    never: str = ""
    #: Whether the batch system would refuse it again.
    final: bool = False


class SubmissionOwner(Protocol):
    """The owner of submissions: the jobs of a site, or its pilots."""

    def begun(self, works: list[tuple[Submission, ArrayTask]], words: str) -> None:
        """Note that tasks run."""

    def taken(self, one: Submission) -> None:
        """Note that the batch system has accepted a submission."""

    def said(self, one: Submission, words: str) -> None:
        """Note why tasks wait; the `words` of a task, if any, are more specific."""

    def over(self, one: Submission, work: ArrayTask, end: TaskEnd) -> None:
        """Note that a task is over; it stays until `forget` is called."""

    async def items(self, one: Submission, key: str) -> list[dict[str, Any]]:
        """Return the orders of the live tasks of a submission, rewritten for a key."""
        ...
