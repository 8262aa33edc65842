"""A project run by a thread of this process, with the folders of its jobs where MEOW has them."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
from anyio.from_thread import start_blocking_portal

from pilotage.base import errors
from pilotage.compat.meow import output
from pilotage.hub import wiring
from pilotage.hub.project import Project
from pilotage.job.model import State
from pilotage.job.records import Selection
from pilotage.rule.model import Rule

_log = logging.getLogger("pilotage.compat.meow")
_BOOK = "meow"
_GLANCE_S = 0.1
_MOMENT_S = 0.01


class Engine:
    """What runs between the start and the stop of a runner."""

    def __init__(self, root: Path, folder: Path, slots: int, rules: Iterable[Rule]) -> None:
        """Begin; return when what exists has been looked at, or raise what went wrong."""
        self._root = root
        self._folder = folder
        self._stopping: anyio.Event
        ready = threading.Event()
        with ExitStack() as stack:
            self._project = stack.enter_context(Project(root))
            site = msgspec.structs.replace(self._project.settings.site, cpus=slots)
            self._project.settings = msgspec.structs.replace(self._project.settings, site=site)
            self._project.put_rules(_BOOK, rules)
            self._portal = stack.enter_context(start_blocking_portal())
            self._task = self._portal.start_task_soon(self._run, ready.set)
            self._task.add_done_callback(lambda _: ready.set())
            ready.wait()
            self._raise_if_dead()
            self._task.add_done_callback(_tell)
            self._open = stack.pop_all()

    def publish(self, rules: Iterable[Rule]) -> None:
        """Take other rules; return when they take all events."""
        with Project(self._root) as project:
            project.put_rules(_BOOK, rules)
            while not project.rules_in_force():
                self._raise_if_dead()
                time.sleep(_MOMENT_S)

    def stop(self, *, wait: bool) -> None:
        """End; `wait` says whether for the jobs that run now, too."""
        with self._open:
            try:
                if wait:
                    self._await_running()
            finally:
                self._portal.call(self._stopping.set)
            _result(self._task)
            output.deliver(self._project.db, self._folder)

    def _await_running(self) -> None:
        with Project(self._root) as project:
            running = Selection(states=(State.RUNNING,))
            left = {job.id for job in project.jobs(running)}
            while left and not self._task.done():
                time.sleep(_MOMENT_S)
                left &= {job.id for job in project.jobs(running)}

    def _raise_if_dead(self) -> None:
        if self._task.done():
            _result(self._task)

    async def _run(self, ready: Callable[[], None]) -> None:
        self._stopping = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow)
            tasks.start_soon(functools.partial(wiring.up, self._project, ready=ready))
            await self._stopping.wait()
            tasks.cancel_scope.cancel()

    async def _follow(self) -> None:
        """Write the folders of jobs soon after they end."""
        trouble = ""
        while True:
            try:
                await anyio.to_thread.run_sync(output.deliver, self._project.db, self._folder)
                trouble = ""
            except (OSError, errors.StoreUnavailable) as error:
                if trouble != str(error):
                    _log.error("results wait until they can be written: %s", error)
                trouble = str(error)
            await anyio.sleep(_GLANCE_S)


def _result(task: Future[None]) -> None:
    """Raise what ended a task: the one error, not the groups around it."""
    try:
        task.result()
    except BaseExceptionGroup as group:
        raise _alone(group) from None


def _alone(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _tell(task: Future[None]) -> None:
    if (error := task.exception()) is not None:
        _log.error("the runner ended: %s", _alone(error))
