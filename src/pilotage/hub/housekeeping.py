"""What goes on beside the work: retention, settling files, pokes, noticing that all is done."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from pilotage.base import errors, text, toml, units
from pilotage.base.clock import Clock
from pilotage.batch import files
from pilotage.event import records
from pilotage.flow import forget as flows
from pilotage.job import purge
from pilotage.project.settings import Retention
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.hub")
_HOUR_S = 3600.0
_GLANCE_S = 0.05
#: Rule files are few and their folder may be on any file system: looking is simpler than listening.
_FOLDER_S = 0.5
#: How long nothing must have happened before all counts as done.
_QUIET_S = 0.5


async def keep_tidy(writer: Writer, clock: Clock, settings: Retention) -> None:
    """Forget what ended long ago: jobs, flows, and events, now and every hour."""
    while settings.keep:
        before = clock.now() - units.seconds(settings.keep)
        for forget in (purge.forget, flows.forget, records.forget):
            step = functools.partial(forget, before=before)
            while (paths := await writer.run(step)) is not None:
                await anyio.to_thread.run_sync(purge.remove, paths)
        await anyio.sleep(_HOUR_S)


class EventSource(Protocol):
    """Something that events come from."""

    @property
    def idle(self) -> bool:
        """Whether all that happened so far has been taken."""
        ...


async def until_quiet(
    sources: Iterable[EventSource], never: Callable[[Db], set[int]], writer: Writer
) -> None:
    """Return when nothing has been left to do for a while."""
    quiet = 0.0
    while quiet < _QUIET_S:
        await anyio.sleep(_GLANCE_S)
        live = await writer.run(functools.partial(_live, never=never))
        quiet = quiet + _GLANCE_S if not live and all(one.idle for one in sources) else 0.0


async def until_sites(root: Path) -> None:
    """Return when the project has files of sites; a mistake in the first one is told."""
    wrong = ""
    while True:
        try:
            if await anyio.to_thread.run_sync(files.read_all, root):
                return
        except errors.PilotageError as error:
            if str(error) != wrong:
                _log.error("%s", error)
            wrong = str(error)
        await anyio.sleep(_FOLDER_S)


def pools(root: Path) -> list[str]:
    """List the pools of a project by name, without loading what steers them."""
    return toml.names(root / "pools")


async def until_pools(root: Path) -> None:
    """Return when the project has files of pools."""
    while True:
        if await anyio.to_thread.run_sync(pools, root):
            return
        await anyio.sleep(_FOLDER_S)


def _live(db: Db, never: Callable[[Db], set[int]]) -> int:
    jobs = int(db.value("job_live", never=text.dump(list(never(db)))))
    return jobs + int(db.value("flows_live"))
