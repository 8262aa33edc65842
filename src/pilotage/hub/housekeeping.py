"""What goes on beside the work: retention, settling files, pokes, noticing that all is done."""

from __future__ import annotations

import functools
import os
from asyncio import wrap_future
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread

from pilotage import units
from pilotage.clock import Clock
from pilotage.hub import books
from pilotage.hub.config import Retention
from pilotage.hub.intake import Intake
from pilotage.hub.sources import Bell
from pilotage.job import purge
from pilotage.store import Writer

_HOUR_S = 3600.0
_GLANCE_S = 0.05
#: Rule files are few and their folder may be on any file system: looking is simpler than listening.
_FOLDER_S = 0.5
#: How long nothing must have happened before all counts as done.
_QUIET_S = 0.5


async def keep_tidy(writer: Writer, clock: Clock, settings: Retention) -> None:
    """Forget jobs that ended long ago, now and every hour."""
    while settings.keep:
        before = clock.now() - units.seconds(settings.keep)
        forget = functools.partial(purge.forget, before=before)
        while folders := await wrap_future(writer.submit(forget)):
            await anyio.to_thread.run_sync(purge.remove, folders)
        await anyio.sleep(_HOUR_S)


async def settle(intake: Intake, clock: Clock, bell: Bell) -> None:
    """Fire rules on files that have been left alone for long enough."""
    while True:
        due = intake.next_due
        await bell.wait(None if due is None else max(0.0, due - clock.now()))
        if intake.next_due is not None and intake.next_due <= clock.now():
            await anyio.to_thread.run_sync(intake.due)


async def listen(pipe: Path, heard: Callable[[], None]) -> None:
    """Hear the pokes of other processes."""
    # Opened for writing too: a pipe whose last writer left would otherwise read as ended for ever.
    end = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            await anyio.wait_readable(end)
            os.read(end, 65536)
            heard()
    finally:
        os.close(end)


async def follow(folder: Path, refresh: Callable[[], None]) -> None:
    """Call `refresh` in a worker thread when the files of a folder may have changed."""
    seen = books.fingerprint(folder)
    while True:
        await anyio.sleep(_FOLDER_S)
        now = books.fingerprint(folder)
        if now != seen:
            seen = now
            await anyio.to_thread.run_sync(refresh)


async def until_quiet(idle: Callable[[], bool], writer: Writer) -> None:
    """Return when nothing has been left to do for a while."""
    quiet = 0.0
    while quiet < _QUIET_S:
        await anyio.sleep(_GLANCE_S)
        live = await wrap_future(writer.submit(lambda db: db.value("job_live")))
        quiet = quiet + _GLANCE_S if idle() and not live else 0.0
