"""Background work of the hub: retention, and waiting until nothing is left to do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Protocol

import anyio
import anyio.to_thread

from pilotage.base import text, units
from pilotage.base.clock import Clock
from pilotage.event import records
from pilotage.flow import records as flows
from pilotage.job import purge
from pilotage.project.settings import Retention
from pilotage.store import Db, Writer

_HOUR_S = 3600.0
_GLANCE_S = 0.05
#: Seconds without activity after which all work counts as done.
_QUIET_S = 0.5


async def keep_tidy(writer: Writer, clock: Clock, settings: Retention) -> None:
    """Delete old ended jobs, flows and events, now and every hour."""
    while settings.keep:
        before = clock.now() - units.seconds(settings.keep)
        for forget in (purge.forget, flows.forget, records.forget):
            step = functools.partial(forget, before=before)
            while (paths := await writer.run(step)) is not None:
                await anyio.to_thread.run_sync(purge.remove, paths)
        await anyio.sleep(_HOUR_S)


class EventSource(Protocol):
    """A source of events."""

    @property
    def idle(self) -> bool:
        """Whether all events so far have been handled."""
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


def _live(db: Db, never: Callable[[Db], set[int]]) -> int:
    jobs = int(db.value("job_live", never=text.dump(list(never(db)))))
    return jobs + int(db.value("flows_live"))
