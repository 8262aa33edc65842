"""Fire one rule on one event, or on a complete set of files: return the rows of its jobs.

The loop guard finds the job that caused a file, and counts how often a rule fires on one.
"""

from __future__ import annotations

import collections
import hashlib
import os.path
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from pilotage.base import text
from pilotage.base.owner import me
from pilotage.event import records
from pilotage.event.model import Event, EventKind
from pilotage.job import template
from pilotage.job.model import Binding, State
from pilotage.rule.model import COMPLETE, FilePattern, Gather, Rate, Rule
from pilotage.store import Db

_MINUTE = 60.0
#: Events that may come often with the same subject: `max_repeats` does not apply to them.
_REPEATABLE = frozenset({EventKind.TIMER, EventKind.MESSAGE, EventKind.JOB_ENDED})
#: How long after its end a job may still be the cause of an event on a file.
_AFTERGLOW = 2.0
#: File systems stamp files by the kernel's tick, which lags behind the clock.
_TICK = 0.02
#: Declared outputs that are kept in mind, the newest; an older one has lost its cause.
MOST_OUTPUTS = 200_000
#: The newest ended jobs of a rule that are kept: each is checked for every event.
_MOST_ENDED = 64


class RunningJob(msgspec.Struct):
    """A job that runs or ran a moment ago, as the guard sees it."""

    job: int
    depth: int
    path: str
    started: float
    ended: float | None = None
    #: What it said that it would write.
    outputs: tuple[str, ...] = ()


class Lineage:
    """Which job caused a file: one that declared it, or the one whose own trigger it resembles.

    Nothing tells an ordinary user which process wrote a file, so beside declared outputs the guard
    takes as evidence only what a feedback loop shows and an instrument does not: a file written
    while a job of the same rule ran, that is that job's trigger itself or carries its name on.
    """

    def __init__(self) -> None:
        """Start empty."""
        #: Declared outputs: path to (job, depth).
        self.outputs: dict[str, tuple[int, int]] = {}
        self._runs: dict[str, dict[int, RunningJob]] = {}

    def started(self, rule: str, runs: RunningJob, outputs: list[str]) -> None:
        """Record that a job starts."""
        self.writes(runs.job, runs.depth, outputs)
        if rule and runs.path:
            runs.outputs = tuple(outputs)
            self._runs.setdefault(rule, {})[runs.job] = runs

    def writes(self, job: int, depth: int, outputs: list[str]) -> None:
        """Record which files a job will write."""
        for path in outputs:
            self.outputs[path] = (job, depth)
        while len(self.outputs) > MOST_OUTPUTS:
            del self.outputs[next(iter(self.outputs))]

    def ended(self, rule: str, job: int, now: float) -> None:
        """Record that a job ended; drop those that ended longer ago."""
        runs = self._runs.get(rule, {})
        if job in runs:
            runs[job].ended = now
        over = [one.job for one in runs.values() if one.ended is not None]
        stale = [old for old in over if (runs[old].ended or now) < now - _AFTERGLOW]
        for old in {*stale, *over[:-_MOST_ENDED]}:
            del runs[old]

    def cause(self, rule: str, event: Event) -> tuple[int | None, int]:
        """Return the job that caused an event and the depth of what follows from it."""
        if declared := self.outputs.get(event.subject):
            return declared[0], declared[1] + 1
        runs = self._runs.get(rule)
        if runs:
            # Jobs of a loop overlap for a moment: the last one that may have written it did.
            likely = [one for one in list(runs.values()) if _resembles(one, event)]
            if likely:
                last = max(likely, key=lambda one: one.depth)
                return last.job, last.depth + 1
        return None, 0


def _resembles(runs: RunningJob, event: Event) -> bool:
    if not event.mtime or event.mtime < runs.started - _TICK:
        return False
    if runs.ended is not None and event.mtime > runs.ended:
        return False
    if event.kind is EventKind.DIR_MODIFIED and runs.outputs:
        # Many write into one folder; a job with declared outputs elsewhere did not write here.
        return any(os.path.dirname(path) == event.subject for path in runs.outputs)
    if event.subject == runs.path:
        return True
    stem = os.path.splitext(os.path.basename(runs.path))[0]
    name = os.path.basename(event.subject)
    return len(stem) > 1 and stem in name and name != os.path.basename(runs.path)


class Pacer:
    """When the next job of a rule may start."""

    def __init__(self) -> None:
        """Start without history."""
        self._past: dict[str, collections.deque[float]] = {}

    def not_before(self, rule: str, rate: Rate, now: float) -> float:
        """Return when the next job may start by the rate limit of the rule."""
        past = self._past.setdefault(rule, collections.deque(maxlen=rate.count))
        if past.maxlen != rate.count:
            past = self._past[rule] = collections.deque(past, maxlen=rate.count)
        place = now if len(past) < rate.count else max(now, past[0] + rate.per)
        past.append(place)
        return place if place > now else 0.0

    def knows(self, rule: str) -> bool:
        """Return whether the history of a rule is known."""
        return rule in self._past

    def remember(self, rule: str, rate: Rate, places: Iterable[float]) -> None:
        """Take over the places that were given before a restart, the oldest first."""
        self._past[rule] = collections.deque(places, maxlen=rate.count)


class Repeats:
    """Counts how often the same file fired the same rule within a minute."""

    def __init__(self) -> None:
        """Start counting."""
        self._since = 0.0
        self._counts: dict[tuple[str, str], int] = {}

    def count(self, rule: str, subject: str, now: float) -> int:
        """Count one more and return how many there are."""
        # A clock that was set back must not make a minute last for hours.
        if not 0 <= now - self._since <= _MINUTE:
            self._since = now
            self._counts.clear()
        key = (rule, subject)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        return count


def too_often(rule: Rule, subject: str, count: int) -> str:
    """Return why a job is held: its file fires its rule repeatedly."""
    return (
        f"loop guard: {subject} fired rule {rule.name} {count} times within a minute "
        f"(max_repeats = {rule.max_repeats}); does the recipe write to its own trigger?"
    )


def too_deep(rule: Rule, depth: int) -> str:
    """Return why a job is held: its rule keeps triggering itself."""
    return (
        f"loop guard: rule {rule.name} caused itself {depth} times in a row "
        f"(max_depth = {rule.max_depth}); release the job or raise max_depth if this is meant"
    )


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


class LoopGuard:
    """Decides how a rule fires on an event: at once, later, or held because of a likely loop."""

    def __init__(self, lineage: Lineage) -> None:
        """Start without history."""
        self._lineage = lineage
        self._repeats = Repeats()
        self.pacer = Pacer()

    def context(self, db: Db, rule: Rule, event: Event, now: float) -> FiringContext:
        """Count one firing of a rule on an event; return its cause, state and time."""
        parent, depth = self._lineage.cause(rule.name, event)
        if event.cause is not None:
            parent, depth = event.cause, int(event.data.get("depth", 0)) + 1
        state, reason = State.QUEUED, ""
        repeats = self._repeats.count(rule.name, event.subject, now)
        if repeats > rule.max_repeats and event.kind not in _REPEATABLE:
            state, reason = State.HELD, too_often(rule, text.show(event.subject), repeats)
        elif depth >= rule.max_depth and parent is not None:
            deep = int(db.value("job_rule_depth", id=parent, rule=rule.name))
            if deep >= rule.max_depth:
                state, reason = State.HELD, too_deep(rule, deep)
        pace = self.pacer.not_before(rule.name, rule.rate, now) if rule.rate else 0.0
        return FiringContext(now, parent, depth, state, reason, pace)


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
