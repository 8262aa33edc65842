"""The doors by which messages come in: HTTP, and TCP ports of rules."""

from __future__ import annotations

import logging
from asyncio import wrap_future
from collections.abc import Callable

import anyio
import anyio.to_thread
from starlette.applications import Starlette

from pilotage.base import errors, units
from pilotage.base.wakeup import Wakeup
from pilotage.event import http, socket
from pilotage.project import secret
from pilotage.project.folder import ProjectFolder
from pilotage.project.settings import Http, Tcp
from pilotage.rule.intake import Intake
from pilotage.rule.model import MessagePattern
from pilotage.store import Writer

_log = logging.getLogger("pilotage.event")
_AGAIN_S = 5


class Doors:
    """Takes messages in; each is answered once it is on disk."""

    def __init__(
        self, project: ProjectFolder, writer: Writer, intake: Intake, inbox: Wakeup
    ) -> None:
        """Ring `inbox` for every message that was stored."""
        self._project = project
        self._writer = writer
        self._intake = intake
        self._inbox = inbox
        self._open: dict[int, anyio.CancelScope] = {}

    async def accept(self, topic: str, body: bytes, identity: str) -> int:
        """Store a message; return the number of its event."""
        step = self._writer.submit(
            lambda db: self._project.store_message(db, topic, body, identity)
        )
        number = await wrap_future(step)
        self._inbox.set()
        return number

    async def take(self, refresh: Callable[[], None]) -> None:
        """Make jobs of the messages in the store, and look at the rules, whenever poked."""
        while True:
            await self._inbox.wait()
            while await anyio.to_thread.run_sync(self._intake.take_stored):
                pass
            await anyio.to_thread.run_sync(refresh)

    def app(self) -> Starlette:
        """Make what takes messages that are posted."""
        settings = self._project.settings.http
        return http.app(self.accept, self._token(settings), units.size(settings.max_size))

    async def serve_ports(self, bell: Wakeup) -> None:
        """Open and close the TCP ports of rules, as the rules come and go."""
        tcp = self._project.settings.tcp
        token = self._token(tcp) if tcp.token_file else ""
        async with anyio.create_task_group() as tasks:
            while True:
                wanted = self._wanted()
                for port in self._open.keys() - wanted.keys():
                    self._open.pop(port).cancel()
                for port in wanted.keys() - self._open.keys():
                    self._open[port] = anyio.CancelScope()
                    tasks.start_soon(self._serve_port, port, wanted[port], token)
                await bell.wait()

    def _token(self, settings: Http | Tcp) -> str:
        if settings.token_file:
            return secret.read(self._project.root / settings.token_file)
        return secret.keep(self._project.state / "token")

    def _wanted(self) -> dict[int, str]:
        return {
            rule.pattern.port: rule.pattern.topics[0]
            for rule in self._intake.rules.values()
            if isinstance(rule.pattern, MessagePattern) and rule.pattern.port is not None
        }

    async def _serve_port(self, port: int, topic: str, token: str) -> None:
        with self._open[port]:
            while not await self._listen(port, topic, token):  # noqa: ASYNC110 - nobody tells when
                await anyio.sleep(_AGAIN_S)

    async def _listen(self, port: int, topic: str, token: str) -> bool:
        """Serve a port; a port that another program has is no reason to stop everything else."""
        tcp = self._project.settings.tcp
        most = units.size(tcp.max_size)
        try:
            await socket.serve(self.accept, topic, port, token, most, tcp.host)
        except errors.Conflict as error:
            _log.error("%s; trying again every %d s", error, _AGAIN_S)
            return False
        return True
