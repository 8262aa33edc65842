"""A pool that isolates failures: other pools are controlled on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from pilotage.base.backoff import Backoff
from pilotage.pool.model import Plan, Reading, Target, View
from pilotage.pool.pipeline import Face

_log = logging.getLogger("pilotage.pool")
#: How long to wait after failures in a row.
RETRY = Backoff(first=1.0, limit=60.0)


class Guarded(Face):
    """Leaves a pool that fails as it is, and tries again later."""

    def __init__(self, inner: Target, tick: Callable[[], float] = time.monotonic) -> None:
        self.inner = inner
        self.name = inner.name
        #: What went wrong last; nothing once it went well again.
        self.error: Exception | None = None
        self._tick = tick
        self._failures = 0
        self._until = 0.0
        self._last = View(inner.name, Reading(0.0, 0.0))

    def view(self) -> View:
        """See it, or what was seen of it last."""
        if self.error is not None and self._tick() < self._until:
            return self._last
        try:
            self._last = self.inner.view()
        except Exception as error:  # noqa: BLE001 - code of others, or a hub: the others go on
            self._fail(error)
        else:
            self.error = None
        return self._last

    def plan(self, view: View, demand: float | None, elapsed: float) -> Plan:
        """Pass it on; what fails keeps what it has, and the rest is for others."""
        if self.error is not None:
            words = f"left as it is: {self.error}"
            return Plan(self.name, None, view.reading.demand, words)
        under = self.inner.plan(view, demand, elapsed)
        return Plan(self.name, under.demand, under.taken, "", (under,))

    def act(self, plan: Plan) -> None:
        """Do it, unless there is trouble."""
        if not plan.below:
            return
        try:
            self.inner.act(plan.below[0])
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)
        else:
            self._failures = 0
            reading = msgspec.structs.replace(self._last.reading, demand=plan.taken)
            self._last = msgspec.structs.replace(self._last, reading=reading)

    def _fail(self, error: Exception) -> None:
        said = str(error) or type(error).__name__
        fresh = self.error is None or str(self.error) != str(error)
        self.error = error
        self._failures += 1
        wait = RETRY.bound(self._failures)
        self._until = self._tick() + wait
        if fresh:
            _log.warning("%s is left as it is, next try in %g s: %s", self.name, wait, said)
