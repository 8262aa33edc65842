"""Why a job matches no place, clause by clause, and the smallest change that would help."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pilotage.job.model import Resources
from pilotage.match.clause import Asked, Edit, figure, meant, needs, required
from pilotage.match.expr.value import is_number
from pilotage.match.submission import FOLDER

_FEW = 3
_UNDECLARED = "it uses files of the project's folder that it does not declare"
_LONGEST = 60
_MOST_CHANGES = 5
_TRIED = 32
_NEEDS = ("cpus", "memory", "gpus", "disk", "time")


class PlaceClass(msgspec.Struct, frozen=True):
    """Offers that are alike."""

    #: What names of expressions stand for.
    attributes: dict[str, Any]
    #: How many offers.
    count: int = 1
    #: What each has in all: `cpus`, `memory`, `gpus`, `disk`, and `time` left in seconds; without
    #: an entry there is no bound.
    total: dict[str, float] = {}
    #: What of it is free now.
    free: dict[str, float] = {}


class Clause(msgspec.Struct, frozen=True):
    """A clause that some offers fail."""

    #: As it is written.
    text: str
    #: What the offers that fail it have.
    have: str
    #: What it wants.
    want: str
    #: How many offers fail it, of how many.
    failing: int
    offers: int

    @property
    def words(self) -> str:
        """Say all in one line."""
        return f"{self.title}: {self.verdict}"

    @property
    def title(self) -> str:
        """Return what is asked for."""
        return _UNDECLARED if self.text == FOLDER else f"`{self.text}`"

    @property
    def verdict(self) -> str:
        """Return how many fail it, and what these have."""
        if self.text == FOLDER:
            unseen = "jobs do not see that folder there"
            return f"{unseen}, at {self.failing} of {self.offers} offers"
        if self.failing < self.offers:
            count = f"{self.failing} of {self.offers} offers fail"
        else:
            count = "every offer fails" if self.offers > 1 else "the only offer fails"
        return f"{count}; {self.have}"


class RequirementChange(msgspec.Struct, frozen=True):
    """A possible change of the requirements, and how many offers would match then."""

    words: str
    offers: int


class MatchReport(msgspec.Struct, frozen=True):
    """The result of comparing a job with all offers."""

    #: Offers in all, those that would do if they were empty, and those that would do now.
    offers: int
    ever: int
    now: int
    #: Clauses that some fail; the one that most fail comes first.
    clauses: tuple[Clause, ...] = ()
    #: The least change comes first; none if there are offers that would do.
    changes: tuple[RequirementChange, ...] = ()


def why(
    wanted: Resources, requirements: str, job: Mapping[str, Any], slots: Sequence[PlaceClass]
) -> MatchReport:
    """Compare what a job asks for with all offers."""
    asked = [*needs(wanted), *required(requirements, job)]
    offers = [_Offer(slot, asked) for slot in slots if slot.count > 0]
    ever = [offer for offer in offers if not offer.failed]
    return MatchReport(
        offers=sum(offer.count for offer in offers),
        ever=sum(offer.count for offer in ever),
        now=sum(offer.count for offer in ever if offer.free(asked)),
        clauses=_clauses(asked, offers),
        changes=() if ever else _changes(offers),
    )


class _Offer:
    """Offers that are alike, and the clauses that they fail."""

    def __init__(self, slot: PlaceClass, asked: Sequence[Asked]) -> None:
        self.count = slot.count
        self.total = _numbers(slot.total)
        self.left = _numbers(slot.free) if slot.free else self.total
        self.attributes = {**slot.total, **slot.attributes}
        self.failed = [one for one in asked if not self.meets(one)]

    def seen(self, one: Asked) -> Mapping[str, Any]:
        """Return what a clause looks at: needs at amounts, requirements at attributes."""
        return self.total if one.need else self.attributes

    def meets(self, one: Asked, edit: Edit | None = None) -> bool:
        """Return whether a clause holds here, as it is or after a change."""
        if edit is not None and edit.then is None:
            return True
        expression = one.expr if edit is None or edit.then is None else edit.then
        return expression.holds(self.seen(one), one.job)

    def free(self, asked: Sequence[Asked]) -> bool:
        """Return whether there is room now."""
        return all(one.expr.holds(self.left, one.job) for one in asked if one.need)


def _numbers(amounts: Mapping[str, float]) -> dict[str, float]:
    return {**dict.fromkeys(_NEEDS, math.inf), "gpus": 0, **amounts}


def _clauses(asked: Sequence[Asked], offers: Sequence[_Offer]) -> tuple[Clause, ...]:
    whole = sum(offer.count for offer in offers)
    found = []
    for one in asked:
        failing = [offer for offer in offers if one in offer.failed]
        if failing:
            count = sum(offer.count for offer in failing)
            want = one.show(one.want) if one.sign else "true"
            found.append(Clause(one.text, _have(one, failing, offers), want, count, whole))
    return tuple(sorted(found, key=lambda clause: -clause.failing))


def _have(one: Asked, failing: Sequence[_Offer], offers: Sequence[_Offer]) -> str:
    """Return what the offers that fail a clause have instead."""
    many = sum(offer.count for offer in failing) > 1
    they = "they have" if many else "it has"
    for name in sorted(one.expr.names):
        if not any(offer.seen(one).get(name) is not None for offer in offers):
            known = {known for offer in offers for known in offer.seen(one)}
            return f"no offer has an attribute `{name}`{meant(name, known - {name})}"
    if not one.sign:
        most = max(failing, key=lambda offer: offer.count)
        seen = most.seen(one)
        facts = (f"{name} = {figure(seen.get(name), {name})}" for name in sorted(one.expr.names))
        return f"{'most have' if many else they} {', '.join(facts)}"
    values = [one.have(offer.seen(one)) for offer in failing]
    numbers: list[Any] = [value for value in values if is_number(value)]
    silent = sum(offer.count for offer, value in zip(failing, values, strict=True) if value is None)
    note = f", and {silent} do not say" if silent and silent < sum(o.count for o in failing) else ""
    if numbers and len(set(numbers)) > 1 and one.sign[0] in "<>":
        best, bound = (
            (max(numbers), "at most") if one.sign[0] == ">" else (min(numbers), "at least")
        )
        return f"{they} {bound} {one.show(best)}{note}"
    shown = list(dict.fromkeys(one.show(value)[:_LONGEST] for value in values if value is not None))
    if not shown:
        return f"{'they do' if many else 'it does'} not say what `{one.side.text}` is"
    more = f" and {len(shown) - _FEW} more" if len(shown) > _FEW else ""
    return f"{they} {', '.join(shown[:_FEW])}{more}{note}"


def _changes(offers: Sequence[_Offer]) -> tuple[RequirementChange, ...]:
    """Find what would let each kind of offer do, and keep what is least or helps most."""
    found: dict[str, tuple[int, float, dict[Asked, Edit]]] = {}
    for offer in offers:
        edits = {one: one.edit(offer.seen(one)) for one in offer.failed}
        words = " and ".join(edit.words for edit in edits.values())
        found[words] = (len(edits), sum(edit.cost for edit in edits.values()), edits)
    best = sorted(found.items(), key=lambda item: item[1][:2])[:_TRIED]
    changes: list[RequirementChange] = []
    for words, (_, _, edits) in best:
        count = sum(
            offer.count
            for offer in offers
            if all(offer.meets(one, edits.get(one)) for one in offer.failed)
            and all(offer.meets(one, edit) for one, edit in edits.items())
        )
        if count > max((change.offers for change in changes), default=0):
            changes.append(RequirementChange(words, count))
    return tuple(changes[:_MOST_CHANGES])
