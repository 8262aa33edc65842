"""The port of the hub: pilots, agents, programs and people connect to it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from starlette.types import ASGIApp

from pilotage.base import durable, text, units
from pilotage.edge.enrolment import AgentEnrolment
from pilotage.edge.port.sites import AgentLines
from pilotage.hub import port as front
from pilotage.hub import tls
from pilotage.hub.connection import Clients, PortConnection
from pilotage.hub.project import Project
from pilotage.job.model import JobSpec
from pilotage.match.queue import JobQueue
from pilotage.pilot.data import Staging
from pilotage.pilot.data_link import DataLinks
from pilotage.pilot.enrolment import Enrolment, Marker
from pilotage.pilot.leases import LeaseMonitor
from pilotage.pilot.sync import LaunchTemplates, SyncHandler
from pilotage.pilot.table import PilotTable
from pilotage.project import settings as config
from pilotage.project import tokens
from pilotage.run.local import JobListener
from pilotage.status import sites
from pilotage.status.offers import HOLE
from pilotage.store import Db, Writer

#: Where programs on this machine find the hub.
ADDRESS = "hub.json"
#: What pilots read that see the project's folder.
_MARKER = "marker"
_CHECK_S = 60.0


class Service:
    """Serves pilots, programs and people at one port."""

    def __init__(
        self, project: Project, writer: Writer, open_reader: Callable[[], Db], queue: JobQueue,
        listener: JobListener, events: Callable[[], ASGIApp], lines: AgentLines,
    ) -> None:  # fmt: skip
        """Connect the parts; `events` makes the application for posted messages.

        Agents of sites that come by this port are heard by `lines`.
        """
        settings = project.settings
        lease = units.seconds(settings.pilots.lease)
        self._project = project
        self._writer = writer
        self._open_reader = open_reader
        self._queue = queue
        self._events, self._lines = events, lines
        self.roster = PilotTable(queue, lease)
        place = config.place(settings, project.root)
        staging = Staging(queue, place, open_reader())
        counter = SyncHandler(
            queue,
            self.roster,
            LaunchTemplates(place, settings.pilots.sandbox),
            staging,
            settings.pilots,
            str(project.state / "jobs"),
            listener,
        )
        self._desk = Enrolment(
            queue, self.roster, counter, settings.pilots, self._checks, _marker(project.state),
            DataLinks(staging),
        )  # fmt: skip
        #: Set when known pilots are loaded; connections wait for it.
        self._loaded = anyio.Event()
        self._watchman = LeaseMonitor(queue, self.roster, settings.match, lease, HOLE)

    async def watch(self) -> None:
        """Monitor pilots and the queue."""
        await self.roster.load()
        self._loaded.set()
        await self._watchman.run()

    def _judge(self, db: Db, specs: Iterable[JobSpec]) -> list[str]:
        """Refuse jobs that their sites will never take; say why others wait."""
        project = self._project
        return sites.check(db, project.root, project.settings, specs, project.clock.now())

    async def serve(self, ready: Callable[[str], None]) -> None:
        """Open the port and serve until cancelled; call `ready` with the address."""
        from pilotage.edge.port_data import PortData, PortDataLimits
        from pilotage.hub import api  # most tests and short runs need no page

        await self._loaded.wait()
        project, settings = self._project, self._project.settings.hub
        secret = await anyio.to_thread.run_sync(self._admin_token)
        context = await anyio.to_thread.run_sync(tls.context, settings, project.state)
        opened = front.listen(settings.host, settings.port, roam=settings.port == config.PORT)
        port = opened.getsockname()[1]
        address = f"{'https' if context else 'http'}://{_shown(settings.host)}:{port}"
        gate = tokens.TokenGate(self._open_reader(), project.clock.now)
        clients = Clients(
            self._writer, self._open_reader(), gate, self._queue, project.clock,
            self._judge, str(project.root),
        )  # fmt: skip
        agents = AgentEnrolment(self._writer, gate, self._lines, project.clock.now)
        face = api.Api(
            api.ApiContext(
                self._writer,
                self._open_reader,
                project.clock,
                project,
                self._queue.poke,
                trouble=lambda: self._queue.broken,
            ),
            gate,
            self._events(),
            PortData(
                config.port_folder(project.state), self._open_reader(),
                PortDataLimits(bytes=units.size(project.settings.flows.most)),
            ),
        )  # fmt: skip
        file = project.state / ADDRESS
        authority = tls.authority(settings, project.state) if context else None
        _write(file, {"url": address, "ca": str(authority) if authority else ""})
        self._queue.on_end.append(face.live.poke)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(face.live.run)
                ready(f"{address}/#token={secret}")
                await front.serve(
                    face.app, lambda: PortConnection(self._desk, clients, agents), opened,
                    tls=context, closing=face.live.close,
                )  # fmt: skip
        finally:
            file.unlink(missing_ok=True)

    def _admin_token(self) -> str:
        return self._writer.do(
            lambda db: tokens.at_home(db, self._project.state, self._project.clock.now())
        )

    def _checks(self, pool: str) -> list[dict[str, Any]]:
        """Read the scripts that nodes must pass: the hub's, and those of the pilot's pool."""
        folder = self._project.root / self._project.settings.pilots.checks
        found = [("hub", file) for file in _scripts(folder)]
        if pool:
            found += [("group", file) for file in _scripts(folder / pool)]
        return [
            {"name": file.name, "kind": kind, "source": file.read_text(), "timeout": _CHECK_S}
            for kind, file in found
        ]


def _marker(state: Path) -> Marker:
    """Return a file with a secret that proves access to the project's folder."""
    file = state / _MARKER
    if not file.exists():
        durable.write(file, secrets.token_hex(32), mode=0o600)
    return Marker(str(file), file.read_text())


def _scripts(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(one for one in folder.iterdir() if one.is_file() and os.access(one, os.X_OK))


def _shown(host: str) -> str:
    """Return the name by which other machines reach a host."""
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - compared, not bound
        return os.uname().nodename
    return f"[{host}]" if ":" in host else host


def _write(file: Path, facts: dict[str, str]) -> None:
    durable.write(file, text.dump(facts))
