"""Pilots, how full sites were, and who has used how much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET

from pilotage.base import errors, text, units
from pilotage.hub.api import answers, queries
from pilotage.hub.api.call import ApiCall
from pilotage.match.share import group_of
from pilotage.pilot.model import NodeFacts
from pilotage.project.settings import Owner
from pilotage.store import Db

_HOUR_S = 3600.0
_MOST_JOBS = 1000
_MOST_SAMPLES = 20_000
_NOBODY = Owner()


def row(facts: tuple[Any, ...]) -> answers.PilotRow:
    """Read a row of the store."""
    return answers.PilotRow(*_fields(facts))


def _fields(facts: tuple[Any, ...]) -> tuple[Any, ...]:
    number, name, site, pool, state, reason, body, *rest = facts
    node = _node(body)
    has = (node.host, node.cpus, node.memory, len(node.gpus)) if node else ("", 0, 0, 0)
    return (number, name, site, pool, state, reason, *has, *rest)


def _node(body: str) -> NodeFacts | None:
    """Read what a node said of itself; one that has not come yet has said nothing."""
    try:
        return msgspec.convert(text.load(body or "null"), NodeFacts)
    except msgspec.ValidationError:
        return None


def cores(db: Db) -> tuple[int, int]:
    """Add up the cores of all pilots, and those in use."""
    rows = db.rows("api_pilot_facts")
    nodes = (_node(body) for body, _ in rows)
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
    return answers.PilotSheet(*(*_fields(rows[0]), _node(rows[0][6]), held))


def _missing(number: int) -> errors.NotFound:
    return errors.NotFound(f"there is no pilot {number}", hint="GET /api/v1/pilots lists them")


def verb(asked: str) -> Callable[[Db, ApiCall], answers.Became]:
    """Make what asks a pilot for something."""

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
    """Tell how full sites were."""
    wanted: queries.SamplesAsk = call.query
    since = call.now - _HOUR_S if wanted.since is UNSET else wanted.since
    rows = db.rows("api_samples", since=since, most=_MOST_SAMPLES)
    return answers.Samples([answers.SiteSample(*one) for one in rows])


def shares(db: Db, call: ApiCall, owners: list[tuple[str, str, int]]) -> answers.Shares:
    """Tell who has used how much, and what they are due."""
    share = call.hands.project.settings.share
    half_life = units.seconds(share.half_life)
    due = share.user | share.group
    counts = {(owner, state): count for owner, state, count in owners}
    used = {
        owner: (value * 2.0 ** (min(0.0, since - call.now) / half_life), total)
        for owner, value, since, total in db.rows("usage_all")
    }
    names = sorted({*used, *(owner for owner, _ in counts), *share.user})
    parts = share_of(
        {name: due.get(name, _NOBODY).weight for name in {*names, *share.group}}, names
    )
    rows = []
    for owner in names:
        slice_ = due.get(owner, _NOBODY)
        now, total = used.get(owner, (0.0, 0.0))
        running, queued = (counts.get((owner, state), 0) for state in ("running", "queued"))
        quota = slice_.quota or None
        rows.append(
            answers.ShareRow(owner, now, total, running, queued, slice_.weight, parts[owner], quota)
        )
    return answers.Shares(half_life, rows)


def share_of(weights: dict[str, float], owners: list[str]) -> dict[str, float]:
    """Say which part of all is due to each owner: first among the groups, then in the group."""
    groups: dict[str, float] = {}
    inside: dict[str, float] = {}
    for owner in owners:
        group = group_of(owner)
        groups[group] = weights.get(group, 1.0)
        inside[group] = inside.get(group, 0.0) + weights[owner]
    whole = sum(groups.values())
    return {
        owner: groups[group_of(owner)] / whole * weights[owner] / inside[group_of(owner)]
        for owner in owners
    }
