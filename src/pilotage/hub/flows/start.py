"""Begins the workflow service when there is something for it; most projects have no workflows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import anyio

from pilotage import text
from pilotage.hub.project import Project
from pilotage.hub.sources import Bell
from pilotage.store import Db, Writer

#: The store is looked at so often at most, in seconds.
_GLANCE_S = 0.05


async def keep(
    project: Project, writer: Writer, open_reader: Callable[[], Db], bell: Bell,
    poke: Callable[[], None], told: Callable[[], None],
) -> None:  # fmt: skip
    """Serve workflows until cancelled, from the first one on.

    `bell` rings when something may be new; `poke` is called when jobs of this hub are new, and
    `told` when tasks ended.
    """

    def rung() -> None:
        # Whoever writes may do so after the loop has ended.
        with contextlib.suppress(RuntimeError):
            bell.ring()

    writer.on_commit.append(rung)
    try:
        settings = project.settings
        if not (settings.bus.url and settings.flows.users):
            await _until_any(open_reader(), bell)
        from pilotage.hub.flows.clear import Ends
        from pilotage.hub.flows.data import Hand
        from pilotage.hub.flows.service import Flows

        text.prime_all()
        data = Hand(project, writer, open_reader())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Ends(project, writer, open_reader(), data.heal).run)
            tasks.start_soon(Flows(project, writer, open_reader, data, bell, poke, told).run)
    finally:
        writer.on_commit.remove(rung)


async def _until_any(db: Db, bell: Bell) -> None:
    while not db.value("flows_any"):
        await bell.wait()
        await anyio.sleep(_GLANCE_S)
