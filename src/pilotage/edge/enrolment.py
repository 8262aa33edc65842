"""Agents that dial this hub's port: admitted by a token, until it is revoked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import anyio
import msgspec

from pilotage.base import crash, errors, text
from pilotage.base.supervise import Background
from pilotage.edge.port import model
from pilotage.edge.port.serve import AgentSession
from pilotage.edge.port.sites import AgentLines
from pilotage.pilot import messages
from pilotage.pilot.data_link import streams
from pilotage.project import tokens
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.link")


class AdmittedAgent(msgspec.Struct, frozen=True):
    """An agent that has proved its site."""

    site: str
    #: What proves it from now on.
    key: str
    beat: float


class AgentEnrolment:
    """Admits agents, and closes their connections when their tokens are revoked."""

    def __init__(
        self, writer: Writer, gate: tokens.TokenGate, lines: AgentLines, now: Callable[[], float],
        versions: model.Versions = model.VERSIONS,
    ) -> None:  # fmt: skip
        """Take the tokens, the connected sites, and our versions of the protocol."""
        self._versions = versions
        self._writer, self._gate, self._lines, self._now = writer, gate, lines, now
        self._beside = Background(_log, "agents at the port")

    async def admit(self, message: messages.Agent) -> tuple[AdmittedAgent, int]:
        """Return the site that a token or key belongs to, and the version of the protocol."""
        try:
            version = model.agree(message.versions, self._versions)
        except errors.UsageError as error:
            _log.warning("an agent that claims the site %s: %s", text.show(message.site), error)
            raise

        def step(db: Db) -> tokens.Grant:
            return tokens.admit(db, message.token, message.key, message.site, self._now())

        grant = await self._writer.run(step)
        crash.point("link.admitted")
        self._gate.forget()
        return AdmittedAgent(grant.site, message.key, message.beat), version

    def take_over(self, transport: asyncio.Transport, one: AdmittedAgent) -> None:
        """Serve the connection of an agent."""
        self._beside.start(self._serve(transport, one))

    async def _serve(self, transport: asyncio.Transport, one: AdmittedAgent) -> None:
        reader, writer = streams(transport)
        line = self._lines.open(one.site)
        served = AgentSession(line, reader, writer, one.beat)
        _log.info("the agent of %s is connected", one.site)
        try:
            async with anyio.create_task_group() as tasks:

                async def end(why: Callable[[], object]) -> None:
                    await why()  # type: ignore[misc]
                    tasks.cancel_scope.cancel()

                tasks.start_soon(end, served.run)
                tasks.start_soon(end, line.over.wait)
                tasks.start_soon(end, lambda: self._revoked(one, served))
        except* Exception:  # noqa: BLE001 - one agent must not end the hub
            _log.exception("the agent of %s: this is a mistake in Pilotage", one.site)
        finally:
            self._lines.close(line)
            transport.abort()
            _log.info("the agent of %s has disconnected", one.site)

    async def _revoked(self, one: AdmittedAgent, served: AgentSession) -> None:
        """Return once the key of an agent is revoked."""
        while True:
            try:
                self._gate.check(one.key, tokens.TokenScope.AGENT)
            except errors.Denied as error:
                _log.warning("the agent of %s: %s", one.site, error)
                await served.refuse(error)
                return
            await anyio.sleep(tokens.FRESH)
