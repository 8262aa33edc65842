"""A factory process: sites that it reaches, hubs that it feeds, and no jobs of its own."""

from __future__ import annotations

import functools
import logging
from asyncio import wrap_future
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from pilotage.base import errors
from pilotage.batch import files as sites
from pilotage.batch import records
from pilotage.batch.connections import Ways
from pilotage.batch.driver import Driver
from pilotage.batch.model import FACTORY, Site
from pilotage.batch.tunnels import Doors
from pilotage.edge.factory import book, files
from pilotage.edge.factory.feeder import Feeder
from pilotage.edge.factory.floor import Floor
from pilotage.edge.factory.guests import Guests
from pilotage.hub.project import Project
from pilotage.link.relay import Relay
from pilotage.pilot import pack
from pilotage.pool.pilots_at_site import Factory
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.feed")
_T = TypeVar("_T")
#: How often the files of hubs are looked at, in seconds.
_LOOK_S = 2.0
#: How long a hub is left alone after something that nobody foresaw, in seconds.
_ANEW_S = 30.0
_LOOPBACK = "127.0.0.1"


class Serve:
    """Starts pilots at the sites of a project for the hubs that it has files of."""

    def __init__(self, project: Project, writer: Writer) -> None:
        """Get ready; nothing happens before `run`."""
        self._project = project
        self._writer = writer
        self._feeders: dict[str, Feeder] = {}
        #: The port here that leads to each hub, for pilots that come through a login node.
        self._ports: dict[str, int] = {}
        #: How the files of each hub were when it was begun with, and what ends that.
        self._scopes: dict[str, tuple[object, anyio.CancelScope]] = {}
        self._floor: Floor
        self._ways: Ways

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled."""
        found = self._sites()
        await self._do(self._check)
        clock = self._project.clock
        program = await anyio.to_thread.run_sync(pack.archive)
        self._ways = Ways(self._project, self._writer, program)
        self._floor = Floor(self._writer, clock, {name: one.jobs for name, one in found.items()})
        async with anyio.create_task_group() as tasks:
            for name, site in found.items():
                await self._do(functools.partial(records.number, site=name))
                tasks.start_soon(self._ways.keep, name, site, self._work)
            tasks.start_soon(self._ways.show)
            await self._follow(tasks)
            ready()
            while True:
                await anyio.sleep(_LOOK_S)
                await self._follow(tasks)

    def _sites(self) -> dict[str, Site]:
        """Read the sites; a factory without any is a mistake."""
        root = self._project.root
        found = {name: site for name, site in sites.read_all(root).items() if site.batch != FACTORY}
        if not found:
            message = f"{root} has no site to start pilots at"
            raise errors.ConfigError(message, hint="`pilotage site add NAME --batch slurm`")
        return found

    def _check(self, db: Db) -> None:
        """Refuse a project that has nothing to do here, or pilots or jobs of its own at sites."""
        root = self._project.root
        if not files.names(root) and not db.value("guest_live"):
            message = f"{root} has no hub to start pilots for"
            raise errors.ConfigError(message, hint=f"a hub is a file `{files.FOLDER}/NAME.toml`")
        if db.rows("site_counts") or db.value("factory_own"):
            message = f"{root} has jobs or pilots of its own at sites"
            raise errors.Conflict(message, hint="let `pilotage up` end them, or use another folder")

    async def _work(self, name: str, driver: Driver, doors: Doors) -> None:
        """Keep one site at work."""
        factory = Factory(
            name, driver, doors, Guests(name, self._writer, self._feeders, self._ports)
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(driver.remote.keep)
            await driver.load()
            tasks.start_soon(driver.run)
            tasks.start_soon(doors.run)
            tasks.start_soon(factory.run)

    # -- hubs ------------------------------------------------------------------------------------

    async def _follow(self, tasks: TaskGroup) -> None:
        """Feed the hubs that there are files of, as these are now."""
        root = self._project.root
        names = await anyio.to_thread.run_sync(files.names, root)
        await self._do(functools.partial(book.tidy, hubs=names))
        for name in self._scopes.keys() | set(names):
            mark = await anyio.to_thread.run_sync(files.mark, root, name)
            before, scope = self._scopes.get(name, ((), None))
            if mark == before and name in names:
                continue
            if scope is not None:
                scope.cancel()
                del self._scopes[name]
            if name in names:
                fresh = anyio.CancelScope()
                self._scopes[name] = (mark, fresh)
                tasks.start_soon(self._feed, name, fresh)

    async def _feed(self, name: str, scope: anyio.CancelScope) -> None:
        """Feed one hub as long as its file is as it is; a mistake there hurts no other hub."""
        with scope:
            while True:
                try:
                    await self._converse(name)
                except errors.PilotageError as error:
                    _log.error("hub %s is not fed: %s", name, error)
                    await self._note(name, f"{error}; {error.hint}" if error.hint else str(error))
                    return
                except Exception as error:  # noqa: BLE001 - the other hubs are fed anyway
                    _log.exception("hub %s: this is a mistake in Pilotage; it is tried anew", name)
                    await self._note(name, f"a mistake here: {error}")
                    await anyio.sleep(_ANEW_S)

    async def _converse(self, name: str) -> None:
        """Speak with one hub, and have a way open for its pilots meanwhile."""
        known = await anyio.to_thread.run_sync(files.load, self._project.root, name)
        feeder = Feeder(
            name, files.identity(self._project.state, name), known, self._floor, self._writer,
            self._project.clock, self._ways,
        )  # fmt: skip
        relay = Relay(known.way)
        server = await relay.listen(_LOOPBACK, 0)
        self._ports[name] = server.sockets[0].getsockname()[1]
        self._feeders[name] = feeder
        try:
            await feeder.run()
        finally:
            if self._feeders.get(name) is feeder:
                del self._feeders[name], self._ports[name]
            server.close()
            with anyio.CancelScope(shield=True):
                await relay.end()

    async def _note(self, name: str, words: str) -> None:
        await self._do(lambda db: db.run("fed_trouble", hub=name, trouble=words))

    async def _do(self, step: Callable[[Db], _T]) -> _T:
        return await wrap_future(self._writer.submit(step))
