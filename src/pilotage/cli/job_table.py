"""The table of jobs and its columns, and jobs and attempts as data for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from pilotage.base import units
from pilotage.cli.answer import Table, columns
from pilotage.cli.formatting import stamp, state
from pilotage.job.machine import FINAL
from pilotage.job.model import Attempt, Job, State
from pilotage.match.where import JobPlace, places
from pilotage.store import Db

#: The columns of `pilotage job ls`; `jobs` fills them, and `job` is the same for `--json`.
_HEADS = columns("ID> NAME STATE TIME> SITE REASON")


def job(one: Job, place: JobPlace | None) -> dict[str, Any]:
    """Write a job for programs, without its definition; `place` is where it runs or ran."""
    return {
        "id": one.id, "name": one.name, "state": one.state, "reason": one.reason,
        "rule": one.rule, "tag": one.tag, "priority": one.priority, "attempt": one.attempt,
        "created": stamp(one.created), "started": stamp(one.started), "ended": stamp(one.ended),
        "not_before": stamp(one.not_before or None), "path": one.binding.path,
        "event": one.event, "parent": one.parent, "place": msgspec.to_builtins(place),
    }  # fmt: skip


def definition(one: Job) -> dict[str, Any]:
    """Write what a job runs, and with what."""
    return {
        "spec": msgspec.to_builtins(one.spec),
        "binding": msgspec.to_builtins(one.binding),
        "limit_key": one.limit_key,
    }


def attempt(one: Attempt) -> dict[str, Any]:
    """Write an attempt for programs."""
    facts: dict[str, Any] = msgspec.structs.asdict(one)
    del facts["job"], facts["starter"]
    return facts | {"started": stamp(one.started), "ended": stamp(one.ended)}


def elapsed(one: Job, now: float) -> str:
    """Write how long a job ran or has been running."""
    if one.started is None:
        return ""
    if one.ended is None and one.state is not State.RUNNING:
        return ""
    return units.for_people(max(0.0, (one.ended or now) - one.started))


def where(db: Db, found: Iterable[Job]) -> dict[int, JobPlace]:
    """Find where jobs run or ran."""
    return places(db, [one.id for one in found if one.attempt])


def site(place: JobPlace | None) -> str:
    """Name the site of a place."""
    return place.site if place else ""


def jobs(
    found: Iterable[Job], now: float, where: Mapping[int, JobPlace], reasons: Mapping[int, str] = {}
) -> Table:
    """Write jobs as a table with the columns of a batch system."""
    rows = (
        (
            one.id, one.name, state(one.state), elapsed(one, now), site(where.get(one.id)),
            reasons.get(one.id, one.reason),
        )
        for one in found
    )  # fmt: skip
    return Table(_HEADS, tuple(rows))


def ended(one: Job) -> bool:
    """Return whether nothing more will happen to a job by itself."""
    return one.state in FINAL
