"""What was asked of a batch system, and what a listing lets one conclude of it: pure."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

import msgspec

from pilotage.site.batch.model import Item, Order, Phase

#: Listings in a row that must be without something before it counts as gone.
_EMPTY = 2
_ABSENT = 3
#: How long the evidence of an end may take to be seen after the scheduler speaks of it, in seconds.
LINGER_S = 15.0
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


def new_key() -> str:
    """Make a name that nothing else has: 15 letters and digits, which every batch system takes."""
    return "pl" + "".join(secrets.choice(_LETTERS) for _ in range(13))


class Work(msgspec.Struct):
    """One of what a submission is for."""

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
    #: Whether somebody wants it to end.
    stopping: bool = False


class Submission(msgspec.Struct):
    """One call of a submit command."""

    id: int
    key: str
    batch: str
    order: Order
    #: Whether the batch system is known to have it.
    known: bool = False
    #: The id that it has there.
    number: str = ""
    tries: int = 1
    works: dict[int, Work] = {}
    #: When the batch system was last asked for it, on our clock; 0 while nobody has asked.
    asked: float = 0.0
    #: Whether it is being asked now.
    asking: bool = False
    #: Good listings without it since then, and the time of the first of them.
    empty: int = 0
    empty_since: float = 0.0
    #: The last word of the batch system about it.
    words: str = ""
    #: Whether that word was that it can never be accepted.
    final: bool = False


class Known(msgspec.Struct, frozen=True):
    """The batch system has it."""

    number: str


class Unknown(msgspec.Struct, frozen=True):
    """The batch system does not have it and never will: it may be submitted anew, once fenced."""


class Began(msgspec.Struct, frozen=True):
    """The scheduler says that it runs."""

    work: Work
    item: Item


class Over(msgspec.Struct, frozen=True):
    """The scheduler says that it is over, and its own evidence has not come."""

    work: Work
    item: Item


class Gone(msgspec.Struct, frozen=True):
    """It is not listed any more, and nothing tells how it ended."""

    work: Work


Finding = Known | Unknown | Began | Over | Gone


def look(
    one: Submission, found: Sequence[Item], remembered: Sequence[Item], now: float, settle: float
) -> list[Finding]:
    """Say what a good listing, and history where there is one, tell of a submission.

    `now` is when the listing was asked for: what was submitted later cannot be on it.
    """
    listed = [*found, *remembered]
    if not one.known:
        if listed:
            return [Known(_whole(listed))]
        return [Unknown()] if _missing(one, now, settle) else []
    findings: list[Finding] = []
    by_place: dict[int, Item] = {}
    for item in (*remembered, *found):
        by_place[item.index] = item
    for work in one.works.values():
        finding = _judge(work, by_place.get(work.place), now, settle, since=one.asked)
        if finding is not None:
            findings.append(finding)
    return findings


def _missing(one: Submission, now: float, settle: float) -> bool:
    """Count a good listing without a submission that is in doubt."""
    if one.asking or not one.asked or now <= one.asked:
        return False
    one.empty += 1
    if one.empty == 1:
        one.empty_since = now
    if one.final:
        return True
    return one.empty >= _EMPTY and now - one.empty_since >= settle


def _judge(
    work: Work, item: Item | None, now: float, settle: float, since: float
) -> Finding | None:
    if item is None:
        if now <= since:
            return None
        work.absent += 1
        if work.absent == 1:
            work.absent_since = now
        enough = work.absent >= _ABSENT and now - work.absent_since >= max(settle, LINGER_S)
        return Gone(work) if enough else None
    work.absent = 0
    match item.phase:
        case Phase.RUNNING if not work.began:
            return Began(work, item)
        case Phase.OVER:
            work.over_since = work.over_since or now
            return Over(work, item) if now - work.over_since >= LINGER_S else None
        case _:
            work.over_since = 0.0
            return None


def _whole(items: Iterable[Item]) -> str:
    """Name a submission by the first of its parts that is listed."""
    return min((item.id for item in items), key=lambda one: (len(one), one))


def forget_listings(one: Submission, now: float) -> None:
    """Count listings from now on: it has just been asked for."""
    one.asked, one.empty, one.empty_since, one.words, one.final = now, 0, 0.0, "", False
