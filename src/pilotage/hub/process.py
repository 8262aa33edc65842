"""One process that runs a project: it opens the store and runs a hub or an agent."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol

import anyio.to_thread

from pilotage.edge.forward import TargetHub
from pilotage.flow import start as flows
from pilotage.hub.project import Project
from pilotage.hub.wiring import Hub
from pilotage.store import Db, Writer, connect


class Process(Protocol):
    """A process of another kind than a hub."""

    async def run(self, ready: Callable[[], None], /) -> None:
        """Run until cancelled; call `ready` when it has begun."""


Instead = Callable[[Project, Writer, Callable[[], Db]], Process]


async def up(
    project: Project, *, until_idle: bool = False, ready: Callable[[], None] = lambda: None,
    local: bool = True, serve: Callable[[str], None] | None = None,
    target: TargetHub | None = None, instead: Instead | None = None,
) -> None:  # fmt: skip
    """Run a project until cancelled, or until nothing is left to do.

    Without `local` no job runs on this machine. With `serve` the port is opened and `serve` is
    called with its address. With a `target` all jobs are forwarded to that hub. `instead` makes a
    process of another kind.
    """
    # Modules stay loaded: exclude them from garbage collection.
    gc.freeze()
    with ExitStack() as stack:
        announce = stack.enter_context(project.alone())
        store = connect(project.db.path)
        if serve:
            await anyio.to_thread.run_sync(store.lengthen_log)
        writer = Writer(store)
        stack.callback(writer.close)

        def open_reader() -> Db:
            reader = connect(project.db.path)
            stack.callback(reader.close)
            return reader

        def seen_all() -> None:
            announce()
            ready()

        if instead:
            await instead(project, writer, open_reader).run(seen_all)
            return
        await writer.run(lambda db: flows.upgrade(db, project))
        hub = Hub(project, writer, open_reader)
        if target:
            await hub.watch(target, until_idle=until_idle, ready=seen_all)
        else:
            await hub.run(until_idle=until_idle, ready=seen_all, local=local, serve=serve)
