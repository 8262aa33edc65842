"""Run a project in a thread, with job folders where MEOW has them."""

from __future__ import annotations

import functools
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from anyio.from_thread import start_blocking_portal

from pilotage.base import errors
from pilotage.compat.meow import rule
from pilotage.compat.meow.pattern import KINDS
from pilotage.event import records as events
from pilotage.hub import process
from pilotage.hub.project import Project
from pilotage.job import machine, records, template
from pilotage.job.model import Job, State
from pilotage.job.records import Selection
from pilotage.rule.model import Rule
from pilotage.store import Db

_CURSOR = "meow job_output"
#: What an attempt leaves, and what MEOW calls it.
_FILES = {
    "stdout": "stdout.txt",
    "stderr": "stderr.txt",
    "script": "recipe.sh",
    "recipe.py": "recipe.py",
    "recipe.ipynb": "recipe.ipynb",
    "result.ipynb": "result.ipynb",
}
_TYPES = {kind: name for name, kind in KINDS.items()}
_STATUS = {State.DONE: "done", State.CANCELLED: "skipped"}


def deliver(db: Db, folder: Path) -> None:
    """Write the folders of all jobs that ended since the last time; none is left out or partial."""
    while ends := db.rows("journal_ends", after=int(events.cursor(db, _CURSOR) or 0)):
        for number in dict.fromkeys(row[2] for row in ends):
            job = records.get(db, number)
            if machine.FACTS[job.state].final:
                _write(db, job, folder)
        with db.transaction():
            events.advance(db, _CURSOR, str(ends[-1][0]))


def _write(db: Db, job: Job, folder: Path) -> None:
    part = folder / f".job_{job.id}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for attempt in records.attempts(db, job.id)[-1:]:
        for name, known in _FILES.items():
            with suppress(FileNotFoundError):
                _share(f"{attempt.dir}/{name}", part / known)
    # Text that is not UTF-8, as names of files may be, becomes an escape that JSON knows.
    written = json.dumps(_facts(db, job), indent=2, ensure_ascii=False)
    (part / "job.yml").write_bytes(written.encode("utf-8", "backslashreplace"))
    final = folder / f"job_{job.id}"
    shutil.rmtree(final, ignore_errors=True)
    part.rename(final)


def _share(source: str, target: Path) -> None:
    """Let a file appear elsewhere without taking more room, where that is possible."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)


def _facts(db: Db, job: Job) -> dict[str, Any]:
    carried = rule.facts(job.spec)
    known = template.keywords(job.binding, job.spec.base, job.id)
    told = {
        "id": f"job_{job.id}",
        "event": _event(db, job, carried),
        "job_type": carried.job_type,
        "pattern": carried.pattern,
        "recipe": carried.recipe,
        "rule": carried.rule,
        "status": _STATUS.get(job.state, "failed"),
        "create": _time(job.created),
        "start": _time(job.started),
        "end": _time(job.ended),
        "requirements": carried.requirements,
        "parameters": template.parameters(job.spec, job.binding, known),
        "notification": carried.notification,
    }
    return told | ({"error": job.reason} if job.reason else {})


def _event(db: Db, job: Job, carried: rule.MeowFacts) -> dict[str, Any]:
    told = {
        "event_path": job.binding.path,
        "event_rule": carried.rule,
        "file_hash": job.binding.sha256 or None,
        "monitor_base": carried.monitor_base,
    }
    row = db.row("event_get", id=job.event)
    if row is None:
        return told
    event = events.read(row).event
    return {**told, "event_type": _TYPES.get(event.kind, event.kind), "event_time": event.time}


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


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
            deliver(self._project.db, self._folder)

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
            tasks.start_soon(functools.partial(process.up, self._project, ready=ready))
            await self._stopping.wait()
            tasks.cancel_scope.cancel()

    async def _follow(self) -> None:
        """Write the folders of jobs soon after they end."""
        trouble = ""
        while True:
            try:
                await anyio.to_thread.run_sync(deliver, self._project.db, self._folder)
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
