"""MEOW's runner."""

from __future__ import annotations

import logging as logs
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import TextIO, TypeVar

from pilotage.compat.meow import check, rule
from pilotage.compat.meow.engine import Engine
from pilotage.compat.meow.monitor import EDITING, Monitor, nothing
from pilotage.compat.meow.role import Conductor, Handler
from pilotage.job.model import Limit
from pilotage.rule.model import Rule

_LEVELS = (logs.CRITICAL, logs.ERROR, logs.WARNING, logs.INFO, logs.DEBUG)

_Part = TypeVar("_Part", Monitor, Handler, Conductor)


class MeowRunner:
    """Makes and runs the jobs of monitors; it may be started again after it was stopped."""

    def __init__(
        self,
        monitors: Monitor | Sequence[Monitor],
        handlers: Handler | Sequence[Handler],
        conductors: Conductor | Sequence[Conductor],
        job_queue_dir: str = "job_queue",
        job_output_dir: str = "job_output",
        print: TextIO | None = None,  # noqa: A002 - MEOW's name
        logging: int = 0,
    ) -> None:
        """Take one or several of each; as many jobs run at once as there are conductors."""
        self.monitors = check.several(monitors, Monitor, "monitors")
        self.handlers = check.several(handlers, Handler, "handlers")
        self.conductors = check.several(conductors, Conductor, "conductors")
        self.job_queue_dir = check.name(job_queue_dir, "job_queue_dir")
        self.job_output_dir = check.name(job_output_dir, "job_output_dir")
        self.print = print or sys.stdout
        self.logging = check.log_level(logging)
        for handler in self.handlers:
            handler.job_queue_dir = job_queue_dir
        for conductor in self.conductors:
            conductor.job_queue_dir, conductor.job_output_dir = job_queue_dir, job_output_dir
        self._root = Path(job_queue_dir).absolute()
        self._folder = Path(job_output_dir).absolute()
        self._cwd = os.getcwd()
        self._running = ExitStack()
        self._engine: Engine | None = None

    def start(self) -> None:
        """Begin to take events and run jobs; return when what exists has been looked at."""
        if self._engine:
            raise RuntimeError("the runner runs already")
        for folder in (self._root, self._folder):
            folder.mkdir(parents=True, exist_ok=True)
        with EDITING, ExitStack() as stack:
            printers = [(self.print, self.logging)]
            printers += [(one.print, one.logging) for one in self.monitors]
            printers += [(one.print, one.logging) for one in self.handlers]
            stack.enter_context(_printing(printers))
            self._engine = Engine(self._root, self._folder, len(self.conductors), self._rules())
            for monitor in self.monitors:
                monitor.publish = self._publish
            self._running = stack.pop_all()

    def stop(self, *, wait: bool = True) -> None:
        """Stop once the jobs that run now have ended; without `wait` they go back to the queue.

        What is queued stays so, and runs when a runner starts again on the same `job_queue_dir`.
        """
        if not self._engine:
            raise RuntimeError("the runner does not run")
        with EDITING:
            engine, self._engine = self._engine, None
            for monitor in self.monitors:
                monitor.publish = nothing
        with self._running:
            engine.stop(wait=wait)

    # -- who takes part ----------------------------------------------------------------------------

    def get_monitor_by_name(self, name: str) -> Monitor | None:
        """Return the first monitor of a name."""
        return _named(self.monitors, name)

    def get_monitor_by_type(self, wanted: type[Monitor]) -> Monitor | None:
        """Return the first monitor of a type."""
        return _typed(self.monitors, wanted)

    def get_handler_by_name(self, name: str) -> Handler | None:
        """Return the first handler of a name."""
        return _named(self.handlers, name)

    def get_handler_by_type(self, wanted: type[Handler]) -> Handler | None:
        """Return the first handler of a type."""
        return _typed(self.handlers, wanted)

    def get_conductor_by_name(self, name: str) -> Conductor | None:
        """Return the first conductor of a name."""
        return _named(self.conductors, name)

    def get_conductor_by_type(self, wanted: type[Conductor]) -> Conductor | None:
        """Return the first conductor of a type."""
        return _typed(self.conductors, wanted)

    # -- rules -----------------------------------------------------------------------------------

    def _publish(self) -> None:
        if self._engine:
            self._engine.publish(self._rules())

    def _rules(self) -> list[Rule]:
        """Make our rules of all rules that someone handles and someone conducts."""
        found: list[Rule] = []
        names: list[str] = []
        for monitor in self.monitors:
            names.append(monitor.name)
            again = names.count(monitor.name)
            label = monitor.name if again == 1 else f"{monitor.name} {again}"
            for one in monitor.get_rules().values():
                kind = one.recipe.job_type
                if missing := self._missing(kind):
                    warnings.warn(f"{one.name} waits for a {missing} of {kind} jobs", stacklevel=4)
                    continue
                place = rule.MeowContext(
                    label, monitor.base, self._cwd, monitor.settletime, self._limit(kind)
                )
                found.append(rule.build(one, place))
        return found

    def _missing(self, kind: str) -> str:
        if all(handler.job_type != kind for handler in self.handlers):
            return "handler"
        return "" if any(kind in one.job_types for one in self.conductors) else "conductor"

    def _limit(self, kind: str) -> Limit | None:
        """Leave places to other kinds of jobs, where not every conductor takes this one."""
        takers = [one.job_types for one in self.conductors if kind in one.job_types]
        if len(takers) == len(self.conductors):
            return None
        return Limit(key=f"meow {' '.join(sorted(takers[0]))}", most=len(takers))


def _named(parts: Sequence[_Part], name: str) -> _Part | None:
    return next((part for part in parts if part.name == name), None)


def _typed(parts: Sequence[_Part], wanted: type[_Part]) -> _Part | None:
    return next((part for part in parts if isinstance(part, wanted)), None)


@contextmanager
def _printing(printers: list[tuple[TextIO, int]]) -> Iterator[None]:
    """Print what is said of the work, once to each stream that wants something."""
    logger = logs.getLogger("pilotage")
    before = logger.level
    wanted = {id(stream): (stream, level) for stream, level in sorted(printers, key=itemgetter(1))}
    added = []
    for stream, level in wanted.values():
        if level:
            added.append(logs.StreamHandler(stream))
            added[-1].setLevel(_LEVELS[level])
            logger.addHandler(added[-1])
    if added:
        logger.setLevel(min(one.level for one in added))
    try:
        yield
    finally:
        for printer in added:
            logger.removeHandler(printer)
        logger.setLevel(before)
