"""Connections to the sites of a project; each is supervised independently of the others."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable

import anyio
import msgspec

from pilotage.base import backoff
from pilotage.base.supervise import Supervisor
from pilotage.batch import files, records
from pilotage.batch.connection import SiteConnection
from pilotage.batch.driver import SubmissionDriver
from pilotage.batch.model import SiteSettings
from pilotage.batch.shell.choose import choose
from pilotage.batch.system import known
from pilotage.batch.system.model import BatchSystem
from pilotage.batch.tunnels import Tunnels
from pilotage.project.folder import ProjectFolder
from pilotage.store import Writer

#: How often the state of sites is recorded, in seconds.
_SHOW_S = 5.0
_LOOK_S = 0.25
#: A site that failed is restarted after 30 s.
_RESTART = backoff.fixed(30.0)
_log = logging.getLogger("pilotage.batch")

#: The work at a site while it has a driver.
Work = Callable[[str, SubmissionDriver, Tunnels], Awaitable[None]]


class SiteConnections:
    """All sites of a project that this process reaches."""

    def __init__(self, project: ProjectFolder, writer: Writer, program: bytes) -> None:
        """Take the program that is run at sites."""
        self._project = project
        self._writer = writer
        self._program = program
        self._parts = Supervisor(project.clock, _log, _RESTART)
        self._known: dict[str, tuple[SiteConnection, SubmissionDriver]] = {}

    def up(self, name: str) -> bool:
        """Return whether there is a connection to a site."""
        return name in self._known and self._known[name][0].up

    def trouble(self, name: str) -> str:
        """Return what is wrong with a site; empty if nothing is."""
        if name not in self._known:
            return "it is not connected yet"
        remote, driver = self._known[name]
        return remote.trouble or driver.trouble

    async def keep(self, name: str, site: SiteSettings, work: Work) -> None:
        """Keep one site at work until cancelled; an error there does not end the others."""

        def failed(why: str) -> None:
            if name in self._known:
                self._known[name][1].note_trouble("site", f"it is restarted: {why}")

        serve = functools.partial(self._serve, name, site, work)
        await self._parts.keep(f"site {name}", serve, failed=failed)

    async def _serve(self, name: str, site: SiteSettings, work: Work) -> None:
        state, clock = self._project.state, self._project.clock
        shell, place = choose(name, site, state), files.place(site, state)
        remote = SiteConnection(name, site, shell, self._program, place, clock=clock)
        driver = SubmissionDriver(remote, _adapter(remote), self._writer, clock)
        self._known[name] = (remote, driver)
        await work(name, driver, Tunnels(remote, state / "doors" / f"{name}.json"))

    async def show(self) -> None:
        """Record the state of the sites in the store."""
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
                await self._writer.run(show)
            await anyio.sleep(_LOOK_S)


def _adapter(remote: SiteConnection) -> Callable[[str], BatchSystem]:
    """Find batch systems by name; that of one machine is our own program there."""

    @functools.cache
    def find(name: str) -> BatchSystem:
        hello = remote.hello
        program = (remote.site.python, f"{hello.root}/bin/{hello.version}.pyz")
        return known.adapter(
            name, program=program, folder=f"{hello.root}/local", settings=remote.site.plugin
        )

    return find
