"""Fire one rule on one event, or on a complete set of files: return the rows of its jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from pilotage.base import text
from pilotage.base.owner import me
from pilotage.event import records
from pilotage.event.model import Event, EventKind
from pilotage.job import template
from pilotage.job.model import Binding, State
from pilotage.rule.model import COMPLETE, FilePattern, Gather, Rule
from pilotage.store import Db

#: A row of the query `job_add`, or of `job_add_special` if it is longer.
Row = list[Any]
_PLAIN = 5
#: Where the row names its event.
EVENT = 4


class PreparedRule(msgspec.Struct):
    """A rule as firing needs it: with what does not change from event to event."""

    rule: Rule
    #: Number of its definition in the store.
    spec: int
    #: The directory that `{rel}` starts from.
    base: str
    #: The points of its sweep with the text that stands for each in a job's key.
    points: tuple[tuple[dict[str, Any], bytes], ...] = ()

    def __post_init__(self) -> None:
        """Write the points of the sweep once."""
        self.points = tuple((point, text.dump(point).encode()) for point in self.rule.points)


class FiringContext(msgspec.Struct, frozen=True):
    """Time, cause and initial state of the jobs of one firing."""

    now: float
    parent: int | None = None
    depth: int = 0
    state: State = State.QUEUED
    reason: str = ""
    not_before: float = 0.0

    @property
    def special(self) -> bool:
        """Whether the jobs are more than simply queued."""
        return bool(self.parent is not None or self.reason or self.not_before or self.depth)


def binding(event: Event, groups: dict[str, str], point: dict[str, Any]) -> Binding:
    """Return the binding of one job: its event, groups and point of the sweep."""
    if event.kind is EventKind.MESSAGE:
        return Binding(path=event.other, match=groups, sweep=point, data=event.data)
    if event.kind in (EventKind.TIMER, EventKind.JOB_ENDED):
        return Binding(match=groups, sweep=point, data=event.data)
    # Only of a file that stays can it be checked later that it has not changed.
    version = event.version if event.kind in COMPLETE else ""
    return Binding(
        path=event.subject, version=version, other=event.other, match=groups, sweep=point,
        sha256=event.data.get("sha256", ""),
    )  # fmt: skip


def rows(
    ready: PreparedRule, event: Event, groups: dict[str, str], number: int, when: FiringContext,
    paths: tuple[str, ...] = (),
) -> list[Row]:  # fmt: skip
    """Make the rows of the jobs, one for each point of the sweep; most are plain, some special."""
    made: list[Row] = []
    name = ready.rule.name
    stem = f"{name}\0{event.subject}\0{event.version}\0".encode("utf-8", "surrogatepass")
    for point, written in ready.points:
        one = binding(event, groups, point)
        if paths:
            # `{path}` of a set is its last file; what was recorded of one file says nothing of all.
            one = msgspec.structs.replace(one, paths=paths, path=paths[-1], version="", sha256="")
        key = hashlib.blake2b(stem + written, digest_size=16).hexdigest()
        row = [key, name, ready.spec, text.dump(one), number]
        limit_key = limit(ready, one) if ready.rule.spec.limit else ""
        if when.special or limit_key:
            row += [when.state, when.reason, when.not_before, limit_key, when.parent, when.depth]
        made.append(row)
    return made


def encode(made: list[Row]) -> dict[str, str]:
    """Write rows as the JSON of their queries; not in the writer's thread, which is the busiest."""
    plain = [row for row in made if len(row) == _PLAIN]
    special = [row for row in made if len(row) != _PLAIN]
    kinds = {"job_add": plain, "job_add_special": special}
    return {query: text.dump(some) for query, some in kinds.items() if some}


def add(db: Db, encoded: dict[str, str], *, event: int, now: float) -> None:
    """Make jobs and the first lines of their journals; events are numbered from `event` on."""
    last = int(db.value("job_last"))
    for query, some in encoded.items():
        db.run(query, rows=some, event=event, now=now, owner=me())
    db.run("journal_new_jobs", after=last)


def limit(ready: PreparedRule, one: Binding) -> str:
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
    """Return whether size or age exclude an event."""
    if pattern.too_small(event):
        return True
    if pattern.max_size is not None and event.size > pattern.max_size:
        return True
    return pattern.max_age is not None and event.mtime < now - pattern.max_age


def wait_until(pattern: FilePattern, event: Event, now: float) -> float:
    """Return until when a file must be left alone before it fires; 0 if it may fire now."""
    due = now + pattern.settle if pattern.settle else 0.0
    if pattern.min_age and event.mtime + pattern.min_age > now:
        due = max(due, event.mtime + pattern.min_age)
    return due


class SetMember(msgspec.Struct, frozen=True):
    """A file of a set has come."""

    ready: PreparedRule
    gather: Gather
    event: Event
    groups: dict[str, str]
    #: Which set, and which of its files.
    set_key: str
    item: str


def arrival(ready: PreparedRule, gather: Gather, event: Event, groups: dict[str, str]) -> SetMember:
    """Return the set that a file belongs to, and its item in it."""
    known = template.keywords(binding(event, groups, {}), ready.base)
    set_key = template.render(gather.by, known) if gather.by else ""
    item = _plain(template.render(gather.item, known)) if gather.item else event.subject
    return SetMember(ready, gather, event, groups, set_key, item)


def _plain(item: str) -> str:
    """Write `007` as `7`: file names pad their numbers, ranges do not."""
    return str(int(item)) if item.isdecimal() and item.isascii() else item


def complete(gather: Gather, items: list[str]) -> bool:
    """Return whether a set is complete."""
    if gather.values:
        return {_plain(value) for value in gather.values} <= set(items)
    return len(items) >= (gather.count or 1)


def _least(gather: Gather) -> int:
    """Return how many files a complete set has at least."""
    return len({_plain(value) for value in gather.values}) or gather.count or 1


def note(db: Db, one: SetMember, when: Callable[[SetMember], FiringContext]) -> None:
    """Keep a file of a set, and make the job if the set is complete; `when` says how it fires."""
    if one.gather.values and one.item not in map(_plain, one.gather.values):
        return
    rule = one.ready.rule.name
    set_key, item = text.store_path(one.set_key), text.store_path(one.item)
    db.run(
        "gathered_put", rule=rule, set_key=set_key, item=item,
        path=text.store_path(one.event.subject), event=text.dump(one.event),
    )  # fmt: skip
    # Counting is cheap; reading all files of a set for each that comes is not, where it is large.
    if int(db.value("gathered_count", rule=rule, set_key=set_key)) < _least(one.gather):
        return
    members = db.rows("gathered_list", rule=rule, set_key=set_key)
    if not complete(one.gather, [text.load_path(row[0]) for row in members]):
        return
    _fire(db, one, members, when(one))
    db.run("gathered_drop", rule=rule, set_key=set_key)


def _fire(db: Db, one: SetMember, members: list[tuple[Any, ...]], when: FiringContext) -> None:
    events = [msgspec.convert(text.load(row[2]), Event) for row in members]
    versions = "\0".join(f"{event.subject}\0{event.version}" for event in events)
    digest = hashlib.blake2b(versions.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    # The set, not its last file, is what must not fire twice.
    whole = msgspec.structs.replace(one.event, subject=one.set_key, version=digest)
    number = records.add(db, [one.event], taken=True)
    paths = tuple(sorted(event.subject for event in events))
    made = rows(one.ready, whole, one.groups, number, when, paths)
    add(db, encode(made), event=0, now=when.now)
