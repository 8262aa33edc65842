"""Pilots and shares as commands see them, read from the store; drain and stop requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pilotage.base import errors, text, units
from pilotage.match import share as usage
from pilotage.match.share import OwnerUsage
from pilotage.pilot.model import NodeFacts, PilotState
from pilotage.project import settings
from pilotage.project.settings import Share
from pilotage.store import Db

#: States from which a pilot does not come back, but for one that was lost.
OVER = (PilotState.DOWN, PilotState.FAILED, PilotState.LOST)
_HINT = "`pilotage pilot ls --all` lists them"


class PilotSummary(msgspec.Struct, frozen=True):
    """A pilot in a list."""

    id: int
    name: str
    site: str
    pool: str
    state: str
    reason: str
    enrolled: float
    seen: float
    ended: float | None
    #: Jobs that run there, and the cores that they have.
    running: int
    used: int
    #: What a person has asked for that is not done yet.
    asked: str
    #: How busy its payloads keep the cores that they have, and their bytes of memory; nothing if
    #: not measured.
    busy: float | None = None
    resident: int | None = None


class PilotView(PilotSummary, frozen=True, kw_only=True):
    """A pilot as the store has it."""

    #: What its node said of itself; nothing if it has not reported yet.
    facts: NodeFacts | None


def pilots(
    db: Db,
    *,
    states: Sequence[PilotState] = (),
    site: str = "",
    ended: bool = False,
    most: int = 2**62,
) -> list[PilotView]:
    """List pilots, the newest last."""
    chosen = states or ([] if ended else [one for one in PilotState if one not in OVER])
    rows = db.rows(
        "pilot_list", states=text.dump([str(one) for one in chosen]), site=site, most=most
    )
    return [read_row(row) for row in reversed(rows)]


def pilot(db: Db, number: int) -> PilotView:
    """Read one pilot."""
    row = db.row("pilot_get", id=number)
    if row is None:
        raise errors.NotFound(f"there is no pilot {number}", hint=_HINT)
    return read_row((*row[:6], *row[7:16]))


def jobs(db: Db, number: int) -> list[tuple[int, str]]:
    """List the jobs that a pilot holds: number and name."""
    rows = db.rows("api_pilot_jobs", holder=f"pilot:{number}", most=2**62)
    return [(row[0], row[1]) for row in rows]


def ask(db: Db, numbers: Sequence[int], asked: str) -> None:
    """Ask pilots to drain or to stop; all or none."""
    for number in numbers:
        if number == 0:
            message = "pilot 0 is the machine that runs this project"
            raise errors.UsageError(message, hint="Ctrl-C ends `pilotage up`")
        found = pilot(db, number)
        if db.value("pilot_ask", id=number, asked=asked) is None:
            message = f"pilot {number} is {found.state}"
            raise errors.Conflict(message, hint="one that has ended cannot be asked")


def shares(db: Db, share: Share, now: float) -> list[OwnerUsage]:
    """Return what owners and groups have used and are due; the name of a group ends in a slash."""
    slices = settings.slices(share)
    found = usage.table(
        db.rows("usage_all"), db.rows("api_owners"), slices, share.user,
        units.seconds(share.half_life), now,
    )  # fmt: skip
    rows = [msgspec.structs.replace(one, quota=one.quota or 0) for one in found]
    for group, mine in share.group.items():
        inside = [one for one in found if usage.group_of(one.owner) == group]
        rows.append(
            OwnerUsage(
                f"{group}/", sum(one.usage for one in inside), sum(one.total for one in inside),
                sum(one.running for one in inside), sum(one.queued for one in inside),
                mine.weight, sum(one.due for one in inside), mine.quota,
            )
        )  # fmt: skip
    return sorted(rows, key=lambda one: one.owner)


def read_row(row: tuple[Any, ...]) -> PilotView:
    """Read a row of the store."""
    return PilotView(*row[:6], *row[7:], facts=read_facts(row[6]))


def read_facts(body: str) -> NodeFacts | None:
    """Read what a node said of itself; one that has not reported yet has said nothing."""
    try:
        return msgspec.convert(text.load(body or "null"), NodeFacts)
    except msgspec.ValidationError:
        return None
