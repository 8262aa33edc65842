"""One rule fires on one event: rows of jobs come out. Pure, and fast: it runs for every file."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from pilotage import text
from pilotage.event.model import Event, Kind
from pilotage.job.model import Binding, State
from pilotage.rule import template
from pilotage.rule.model import COMPLETE, FilePattern, Rule

#: A row of the query `job_add`.
Row = list[Any]


class Ready(msgspec.Struct):
    """A rule as firing needs it: with what does not change from event to event."""

    rule: Rule
    #: Number of its definition in the store.
    spec: int
    #: The directory that `{rel}` starts from.
    base: str
    #: The points of its sweep with the text that stands for each in a job's key.
    points: tuple[tuple[dict[str, Any], str], ...] = ()

    def __post_init__(self) -> None:
        """Write the points of the sweep once."""
        self.points = tuple((point, text.dump(point)) for point in self.rule.points)


class Circumstance(msgspec.Struct, frozen=True):
    """What else is true of a firing."""

    now: float
    parent: int | None = None
    depth: int = 0
    state: State = State.QUEUED
    reason: str = ""
    not_before: float = 0.0


def binding(event: Event, groups: dict[str, str], point: dict[str, Any]) -> Binding:
    """Say what makes one job differ from its siblings."""
    if event.kind is Kind.MESSAGE:
        return Binding(path=event.other, match=groups, sweep=point, data=event.data)
    if event.kind in (Kind.TIMER, Kind.JOB_ENDED):
        return Binding(match=groups, sweep=point, data=event.data)
    # Only of a file that stays can it be checked later that it has not changed.
    version = event.version if event.kind in COMPLETE else ""
    return Binding(
        path=event.subject, version=version, other=event.other, match=groups, sweep=point,
        sha256=event.data.get("sha256", ""),
    )  # fmt: skip


def rows(
    ready: Ready, event: Event, groups: dict[str, str], number: int, circumstance: Circumstance,
    paths: tuple[str, ...] = (),
) -> list[Row]:  # fmt: skip
    """Make the rows of the jobs, one for each point of the sweep."""
    rule, spec = ready.rule, ready.rule.spec
    made = []
    stem = f"{rule.name}\0{event.subject}\0{event.version}\0".encode("utf-8", "surrogatepass")
    for point, written in ready.points:
        one = binding(event, groups, point)
        if paths:
            # `{path}` of a set is its last file; what was recorded of one file says nothing of all.
            one = msgspec.structs.replace(one, paths=paths, path=paths[-1], version="", sha256="")
        key = hashlib.blake2b(stem + written.encode(), digest_size=16).hexdigest()
        limit_key = limit(ready, one) if spec.limit else ""
        made.append([
            key, spec.name, rule.name, ready.spec, text.dump(one), circumstance.state,
            circumstance.reason, spec.priority, circumstance.not_before, limit_key,
            circumstance.now, number, circumstance.parent, circumstance.depth, "",
        ])  # fmt: skip
    return made


def limit(ready: Ready, one: Binding) -> str:
    """Render the key of the rule's concurrency limit, with the number that may run at once."""
    bound = ready.rule.spec.limit
    if bound is None:
        return ""
    known = template.keywords(one, ready.base)
    # Only what the key asks for: other parameters may hold what is not known yet, such as `{job}`.
    asked = {keyword.partition(".")[0] for keyword in template.names(bound.key)}
    params = {name: value for name, value in ready.rule.spec.params.items() if name in asked}
    values = known | template.fill(params, known) | one.sweep
    return f"{text.store_path(template.render(bound.key, values))}:{bound.most}"


def unfit(pattern: FilePattern, event: Event, now: float) -> bool:
    """Say whether size or age rule an event out."""
    if event.size < pattern.min_size and event.kind not in _SIZELESS:
        return True
    if pattern.max_size is not None and event.size > pattern.max_size:
        return True
    return pattern.max_age is not None and event.mtime < now - pattern.max_age


_SIZELESS = frozenset({Kind.FILE_DELETED, Kind.FILE_MOVED_FROM})


def wait_until(pattern: FilePattern, event: Event, now: float) -> float:
    """Say until when a file must be left alone before it fires; 0 if it may fire now."""
    due = now + pattern.settle if pattern.settle else 0.0
    if pattern.min_age and event.mtime + pattern.min_age > now:
        due = max(due, event.mtime + pattern.min_age)
    return due
