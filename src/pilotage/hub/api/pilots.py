"""Pilots, use of sites over time, and shares of owners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from pilotage.base import errors, text, units
from pilotage.hub.api import answers, queries
from pilotage.hub.api.call import ApiCall
from pilotage.match import share as usage
from pilotage.pilot import view
from pilotage.pilot.view import PilotSummary, PilotView
from pilotage.project import settings
from pilotage.store import Db

_HOUR_S = 3600.0
_MOST_JOBS = 1000
_MOST_SAMPLES = 20_000


def row(found: tuple[Any, ...]) -> answers.PilotRow:
    """Read a row of the store."""
    return answers.PilotRow(**_fields(view.read_row(found)))


def _fields(one: PilotView) -> dict[str, Any]:
    node = one.facts
    host, cpus, memory, gpus = (
        (node.host, node.cpus, node.memory, len(node.gpus)) if node else ("", 0, 0, 0)
    )
    same = {name: getattr(one, name) for name in PilotSummary.__struct_fields__}
    return same | {"host": host, "cpus": cpus, "memory": memory, "gpus": gpus}


def cores(db: Db) -> tuple[int, int]:
    """Add up the cores of all pilots, and those in use."""
    rows = db.rows("api_pilot_facts")
    nodes = (view.read_facts(body) for body, _ in rows)
    return sum(node.cpus for node in nodes if node), sum(used for _, used in rows)


def index(db: Db, call: ApiCall) -> answers.Pilots:
    """List pilots, the newest first."""
    wanted: queries.PilotsAsk = call.query
    states = text.dump([] if wanted.state is UNSET else wanted.state.split(","))
    newest = int(db.value("api_pilot_last")) + 1
    before = newest if wanted.before is UNSET else wanted.before
    rows = db.rows("api_pilots", before=before, states=states, most=wanted.limit)
    more = len(rows) == wanted.limit and rows[-1][0] > 0
    return answers.Pilots([row(one) for one in rows], rows[-1][0] if more else None)


def show(db: Db, call: ApiCall) -> answers.PilotSheet:
    """Read all about a pilot."""
    number = call.path.id
    rows = db.rows("api_pilots", before=number + 1, states="[]", most=1)
    if not rows or rows[0][0] != number:
        raise _missing(number)
    jobs = db.rows("api_pilot_jobs", holder=f"pilot:{number}", most=_MOST_JOBS)
    held = [answers.PilotJob(*one) for one in jobs]
    one = view.read_row(rows[0])
    return answers.PilotSheet(**_fields(one), facts=one.facts, jobs=held)


def _missing(number: int) -> errors.NotFound:
    return errors.NotFound(f"there is no pilot {number}", hint="GET /api/v1/pilots lists them")


def verb(asked: str) -> Callable[[Db, ApiCall], answers.Became]:
    """Return a handler that drains or stops a pilot."""

    def act(db: Db, call: ApiCall) -> answers.Became:
        number = call.path.id
        rows = db.rows("api_pilots", before=number + 1, states="[]", most=1)
        if not rows or rows[0][0] != number:
            raise _missing(number)
        if db.value("pilot_ask", id=number, asked=asked) is None:
            raise errors.Conflict(
                f"pilot {number} is {rows[0][4]}", hint="one that has ended cannot be asked"
            )
        return answers.Became(rows[0][4])

    return act


drain, stop = verb("drain"), verb("stop")


def samples(db: Db, call: ApiCall) -> answers.Samples:
    """Return the use of sites over time."""
    wanted: queries.SamplesAsk = call.query
    since = call.now - _HOUR_S if wanted.since is UNSET else wanted.since
    rows = db.rows("api_samples", since=since, most=_MOST_SAMPLES)
    return answers.Samples([answers.SiteSample(*one) for one in rows])


def shares(db: Db, call: ApiCall, owners: list[tuple[str, str, int]]) -> answers.Shares:
    """Return usage and entitlement of all owners."""
    share = call.context.project.settings.share
    half_life = units.seconds(share.half_life)
    found = usage.table(
        db.rows("usage_all"), owners, settings.slices(share), share.user, half_life, call.now
    )
    return answers.Shares(half_life, found)
