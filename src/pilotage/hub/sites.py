"""The sites of a project: each is connected to, has a batch queue, and may have pilots."""

from __future__ import annotations

import functools
from asyncio import wrap_future
from collections.abc import Callable

import anyio
import anyio.to_thread
import msgspec

from pilotage.hub.factory import Factory
from pilotage.hub.project import Project
from pilotage.hub.roster import Roster
from pilotage.hub.service import ADDRESS
from pilotage.match.queue import Queue
from pilotage.pilot import pack
from pilotage.site import files, launch, records
from pilotage.site.batch import known
from pilotage.site.batch.model import Batch
from pilotage.site.data import Carrier
from pilotage.site.direct import Direct
from pilotage.site.doors import Doors
from pilotage.site.driver import Driver
from pilotage.site.image import Images
from pilotage.site.jail import Jails
from pilotage.site.local import Listener
from pilotage.site.model import Site
from pilotage.site.remote import Remote
from pilotage.site.shell.choose import choose
from pilotage.site.stage.digest import Digests
from pilotage.store import Writer

#: How often the store hears how sites are, in seconds.
_SHOW_S = 5.0
_LOOK_S = 0.25


class Sites:
    """All sites that the project has files of."""

    def __init__(
        self, project: Project, writer: Writer, queue: Queue, roster: Roster,
        place: launch.Place, listener: Listener,
    ) -> None:  # fmt: skip
        """Get ready; nothing happens before `run`."""
        self._project = project
        self._writer = writer
        self._queue = queue
        self._roster = roster
        self._place = place
        self._listener = listener
        self._known: dict[str, tuple[Remote, Driver]] = {}

    async def run(self) -> None:
        """Keep all sites at work until cancelled."""
        found = files.read_all(self._project.root)
        if not found:
            return
        program = await anyio.to_thread.run_sync(pack.archive)
        digests, jails = Digests(), Jails()
        images = Images(self._project.root, self._project.state / "images")
        try:
            async with jails, anyio.create_task_group() as tasks:
                for name, site in found.items():
                    remote = self._reach(name, site, program)
                    driver = Driver(remote, _adapter(remote), self._writer, self._project.clock)
                    self._known[name] = (remote, driver)
                    doors = Doors(remote, self._project.state / "doors" / f"{name}.json")
                    carrier = Carrier(remote, doors, self._project.state, digests, jails, images)
                    tasks.start_soon(self._work, name, driver, doors, carrier)
                tasks.start_soon(self._show)
        finally:
            digests.close()

    def _reach(self, name: str, site: Site, program: bytes) -> Remote:
        state = self._project.state
        shell = choose(name, site, state)
        return Remote(name, site, shell, program, files.place(site, state))

    async def _work(self, name: str, driver: Driver, doors: Doors, carrier: Carrier) -> None:
        """Keep one site at work."""
        direct = Direct(
            name, driver, self._queue, self._writer, self._place, carrier, self._listener
        )
        address = self._project.state / ADDRESS
        factory = Factory(name, driver, doors, self._roster, self._writer, address)
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

    async def _show(self) -> None:
        """Write down how sites are, where commands look for it."""
        shown: dict[str, tuple[str, float]] = {}
        while True:
            now = self._project.clock.now()
            for name, (remote, driver) in self._known.items():
                trouble = remote.trouble or driver.trouble
                before, when = shown.get(name, ("", 0.0))
                if trouble == before and now < when + _SHOW_S:
                    continue
                shown[name] = (trouble, now)
                told = {"hello": remote.hello, "site": remote.site}
                facts = msgspec.json.encode(told).decode()
                show = functools.partial(
                    records.show, site=name, trouble=trouble, since=remote.since, facts=facts,
                    now=now,
                )  # fmt: skip
                await wrap_future(self._writer.submit(show))
            await anyio.sleep(_LOOK_S)


def _adapter(remote: Remote) -> Callable[[str], Batch]:
    """Find batch systems by name; that of one machine is our own program there."""

    @functools.cache
    def find(name: str) -> Batch:
        hello = remote.hello
        program = (remote.site.python, f"{hello.root}/bin/{hello.version}.pyz")
        return known.adapter(name, program=program, folder=f"{hello.root}/local")

    return find
