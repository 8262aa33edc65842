"""The sites of a project: each is connected to, has a batch queue, and may have pilots."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import NamedTuple

import anyio
import anyio.to_thread

from pilotage.base import errors
from pilotage.batch import files, records
from pilotage.batch.connections import SiteConnections
from pilotage.batch.data import SiteStaging
from pilotage.batch.driver import SubmissionDriver
from pilotage.batch.model import SiteSettings
from pilotage.batch.place import BatchPlace
from pilotage.batch.tunnels import Tunnels
from pilotage.data.export import Exports
from pilotage.data.image import Images
from pilotage.data.stage.digest import Digests
from pilotage.hub.project import Project
from pilotage.hub.service import ADDRESS
from pilotage.match.queue import Queue
from pilotage.pilot import pack
from pilotage.pilot.table import Roster
from pilotage.pool.orders import Own
from pilotage.pool.pilots_at_site import Factory
from pilotage.run import launch
from pilotage.run.local import JobListener
from pilotage.store import Writer

_log = logging.getLogger("pilotage.batch")
#: How often new files of sites are looked for, in seconds.
_FOLLOW_S = 2.0
_THEIRS = "an agent speaks for a site of that name: rename the file"


class Goods(NamedTuple):
    """What the data of all sites has in common."""

    digests: Digests
    exports: Exports
    images: Images


class Sites:
    """All sites that the project has files of."""

    def __init__(
        self, project: Project, writer: Writer, queue: Queue, roster: Roster,
        place: launch.LaunchContext, listener: JobListener,
    ) -> None:  # fmt: skip
        """Get ready; nothing happens before `run`."""
        self._project = project
        self._writer = writer
        self._queue = queue
        self._roster = roster
        self._place = place
        self._listener = listener

    async def run(self) -> None:
        """Keep all sites at work until cancelled."""
        found = files.read_all(self._project.root)
        if not found:
            return
        program = await anyio.to_thread.run_sync(pack.archive)
        ways = SiteConnections(self._project, self._writer, program)
        digests, exports = Digests(), Exports()
        images = Images(self._project.root, self._project.state / "images")
        try:
            async with exports, anyio.create_task_group() as tasks:
                work = functools.partial(self._work, Goods(digests, exports, images))

                def begin(name: str, site: SiteSettings) -> None:
                    tasks.start_soon(ways.keep, name, site, work)

                mine = {name: one for name, one in found.items() if await self._stands(name)}
                for name, site in mine.items():
                    begin(name, site)
                tasks.start_soon(self._follow, begin, set(mine))
                tasks.start_soon(ways.show)
        finally:
            digests.close()

    async def _follow(self, begin: Callable[[str, SiteSettings], None], known: set[str]) -> None:
        """Begin with sites whose files come later."""
        wrong: dict[str, str] = {}
        while True:
            await anyio.sleep(_FOLLOW_S)
            found = await anyio.to_thread.run_sync(files.names, self._project.root)
            for name in set(found) - known:
                try:
                    site = await anyio.to_thread.run_sync(files.read, self._project.root, name)
                    if not await self._stands(name):
                        raise errors.Conflict(_THEIRS)
                except errors.PilotageError as error:
                    if wrong.get(name) != str(error):
                        _log.error("site %s is not begun with: %s", name, error)
                    wrong[name] = str(error)
                else:
                    known.add(name)
                    begin(name, site)

    async def _stands(self, name: str) -> bool:
        """Say whether a name stands for the file of a site, and for no site with an agent."""
        stand = functools.partial(records.stand, site=name, way="batch")
        return await self._writer.run(stand)

    async def _work(
        self, goods: Goods, name: str, driver: SubmissionDriver, doors: Tunnels
    ) -> None:
        """Keep one site at work."""
        carrier = SiteStaging(driver.remote, doors, self._project.state, *goods)
        direct = BatchPlace(
            name, driver, self._queue, self._writer, self._place, carrier, self._listener
        )
        patron = Own(name, self._roster, self._writer, self._project.state / ADDRESS)
        factory = Factory(name, driver, doors, patron)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(driver.remote.keep)
                tasks.start_soon(driver.run)
                tasks.start_soon(doors.run)
                tasks.start_soon(direct.run)
                tasks.start_soon(factory.run)
        finally:
            with anyio.CancelScope(shield=True):
                await carrier.close()
