"""Rate limits of rules, and the guard against feedback loops."""

from __future__ import annotations

import collections
import os.path
from collections.abc import Iterable

import msgspec

from pilotage.event.model import Event, EventKind
from pilotage.rule.model import Rate, Rule

_MINUTE = 60.0
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
