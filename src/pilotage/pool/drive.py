"""Run a pipeline by a clock: when it decides, and when only time passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from pilotage.pool.composite import Composite, Factory
from pilotage.pool.decorator import Buffer
from pilotage.pool.guarded import Guarded
from pilotage.pool.model import Plan, Reading, Target, View
from pilotage.pool.pipeline import Bound, Leaf, Pipeline, explain
from pilotage.pool.remote import Voice

#: Elapsed time counts for at most this many intervals, however long the gap.
_LATE = 2.0
#: What is late by less than this many intervals is on time.
_SLACK = 1.5
#: A clock that is early by this part of an interval is on time.
_EARLY = 1e-3


class Driver:
    """Runs a pipeline by a clock; its owner does the sleeping."""

    def __init__(
        self, pipeline: Pipeline, voice: Voice, tick: Callable[[], float] = time.monotonic
    ) -> None:
        """Decide at once; then at each interval of the controller."""
        self.pipeline = pipeline
        self._voice = voice
        self._tick = tick
        self._period = min([pipeline.interval, *periods(pipeline.target)])
        #: What was seen last.
        self.seen = Reading(0.0, 0.0)
        self._decided: float | None = None
        self._passed: float | None = None

    def plan(self) -> Plan:
        """Return what would be decided now; nothing changes."""
        interval = self.pipeline.interval
        return self.pipeline.plan(self._look(), interval, interval)

    def step(self) -> Plan | None:
        """Do what is due; return the decision, if it was time for one."""
        now, interval = self._tick(), self.pipeline.interval
        passed = self._period if self._passed is None else now - self._passed
        if self._decided is not None and now - self._decided < interval * (1 - _EARLY):
            self._passed = now
            self.pipeline.rest(passed)
            return None
        elapsed = interval if self._decided is None else now - self._decided
        if elapsed < _SLACK * interval:
            # As COBalD counts it, whatever a clock and a network add.
            elapsed = interval
        # Also if this fails: what was missed is not made up for.
        self._decided = self._passed = now
        plan = self.pipeline.plan(
            self._look(), min(elapsed, _LATE * interval), min(passed, _LATE * interval)
        )
        self._voice.words = said(plan)
        self.pipeline.act(plan)
        return plan

    def _look(self) -> View:
        view = self.pipeline.view()
        self.seen = view.reading
        return view

    def wait(self) -> float:
        """Return the seconds until something is due."""
        now = self._tick()
        decision = (now if self._decided is None else self._decided + self.pipeline.interval) - now
        passing = (now if self._passed is None else self._passed + self._period) - now
        return max(0.0, min(decision, passing))


def periods(target: Target) -> Iterator[float]:
    """Find what does something by itself, and how often."""
    match target:
        case Bound(decorator=Buffer(window=window)) if window > 0:
            yield window
        case Factory(interval=interval):
            yield interval
        case _:
            pass
    for below in under(target):
        yield from periods(below)


def under(target: Target) -> list[Target]:
    """Return what a target stands above."""
    match target:
        case Bound(target=below):
            return [below]
        case Composite(children=children):
            return list(children)
        case Guarded(inner=inner):
            return [inner]
        case _:
            return []


def guard(target: Target) -> Target:
    """Put a guard before each pool that stands above no other."""
    match target:
        case Bound():
            target.target = guard(target.target)
        case Composite():
            target.children[:] = [guard(one) for one in target.children]
        case Leaf() | Factory():
            return Guarded(target)
        case _:
            pass
    return target


def said(plan: Plan) -> str:
    """Write a decision as one line."""
    return "; ".join(line.strip() for line in explain(plan))
