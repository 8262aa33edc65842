"""Enrolment of pilots: hello, resume after a lost connection, leave."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import Any

import msgspec

from pilotage.base import errors, text, units
from pilotage.match.queue import JobQueue
from pilotage.match.turn import TurnRecords
from pilotage.pilot import messages
from pilotage.pilot.data_link import DataLinks
from pilotage.pilot.model import NodeCheck, NodeFacts, PilotState, Project
from pilotage.pilot.sync import SyncHandler, as_stop, strongest
from pilotage.pilot.table import OVER, Pilot, PilotLink, PilotTable
from pilotage.project import tokens
from pilotage.project.settings import Pilots
from pilotage.store import Db

#: Settings of the sandbox that every node can follow.
_ANY = frozenset({"auto", "none"})
#: Seconds between two measurements of payloads, at most the heartbeat.
_MEASURE_S = 5.0


class Marker(msgspec.Struct, frozen=True):
    """A file that proves that a pilot sees the project's folder."""

    path: str
    #: What it says.
    secret: str


class Enrolment:
    """Enrols pilots, checks them, and sends the terms on which they work."""

    def __init__(
        self, queue: JobQueue, table: PilotTable, handler: SyncHandler, settings: Pilots,
        checks: Callable[[str], list[dict[str, Any]]], marker: Marker, data: DataLinks,
    ) -> None:  # fmt: skip
        """Get ready; `checks` names the scripts that the nodes of a pool must pass."""
        self._queue = queue
        self._table = table
        self._handler = handler
        self._settings = settings
        self._checks = checks
        self._marker = marker
        self._data = data
        self._heartbeat = units.seconds(settings.heartbeat)
        self._lease = units.seconds(settings.lease)
        self.sync = handler.sync
        self.log = handler.log

    async def enrol(self, hello: messages.Hello, line: PilotLink) -> Pilot:
        """Enrol a pilot; its token is used up in the same transaction."""
        messages.check_hello(hello)
        digest = tokens.digest(hello.key)
        # What it sees of the project it must show first.
        told = msgspec.structs.replace(hello.facts, project=Project.UNKNOWN, boxed=Project.UNKNOWN)
        found: list[tuple[int, str, str]] = []

        def add(_ledger: TurnRecords, db: Db, now: float) -> None:
            if known := db.row("pilot_of_key", digest=digest):
                # The answer to its first hello was lost on the way.
                if known[3] != PilotState.BOOTING:
                    raise errors.Conflict(f"pilot {known[0]} has this key", hint="resume it")
                found.append(known[:3])
                return
            grant = tokens.consume(db, hello.token, tokens.TokenScope.ENROL, now)
            site = grant.site or hello.facts.host
            name = text.show(hello.name or hello.facts.host)[:100]
            facts = text.dump(told)
            if grant.pilot is None:
                number = db.value(
                    "pilot_add", name=name, site=site, pool=grant.pool, state=PilotState.BOOTING,
                    digest=digest, facts=facts, now=now,
                )  # fmt: skip
            else:
                number = db.value(
                    "pilot_come", id=grant.pilot, name=name, digest=digest, facts=facts, now=now
                )
            if number is None:
                message = f"pilot {grant.pilot} was cancelled"
                raise errors.Denied(message, hint="order another: `pilotage pilot start`")
            db.run("pilot_token", id=number, token=grant.id)
            found.append((int(number), site, grant.pool))

        await self._queue.do(add)
        number, site, pool = found[-1]
        pilot = self._table.add(number, site, pool, told, PilotState.BOOTING, digest)
        pilot.line = line
        self._table.heard(pilot)
        return pilot

    def terms(self, pilot: Pilot) -> dict[str, Any]:
        """Return the terms on which a pilot works here."""
        settings = self._settings
        return {
            "pilot": pilot.number, "site": pilot.site, "heartbeat": self._heartbeat,
            "lease": self._lease, "checks": self._checks(pilot.pool), "env": dict(settings.env),
            "setup": [], "idle": units.seconds(settings.idle) if settings.idle else None,
            "measure": min(_MEASURE_S, self._heartbeat), "marker": self._marker.path,
        }  # fmt: skip

    async def ready(self, pilot: Pilot, message: messages.Ready) -> None:
        """Give a pilot work from now on, if its node passed all checks."""
        self._table.heard(pilot)
        failed = [one for one in message.checks if not one.ok]
        wanted = self._settings.sandbox
        if wanted not in _ANY and wanted not in pilot.facts.sandboxes:
            words = f"there is no sandbox `{wanted}`, and this hub wants it"
            failed.append(NodeCheck(name="sandbox", kind="hub", ok=False, words=words))
        if failed:
            words = "; ".join(f"{one.name} ({one.kind}): {one.words or 'failed'}" for one in failed)
            await self._table.move(pilot, PilotState.FAILED, text.show(words)[:2000])
            raise errors.Denied(
                f"this node gets no work: {words}", hint="repair the node and start the pilot again"
            )
        if message.seen is not None:
            await self._table.describe(pilot, self._sight(pilot.facts, message))
        await self._table.move(pilot, PilotState.AVAILABLE, "")
        if pilot.state in OVER:
            raise errors.Denied(f"pilot {pilot.number} is {pilot.state}", hint="enrol again")

    def _sight(self, facts: NodeFacts, message: messages.Ready) -> NodeFacts:
        """Add what payloads of a pilot see of the project, by what it could read of that."""
        if not hmac.compare_digest((message.seen or "").encode(), self._marker.secret.encode()):
            return msgspec.structs.replace(facts, project=Project.HIDDEN, boxed=Project.HIDDEN)
        boxed = Project(message.shown) if message.shown else Project.HIDDEN
        kind = strongest(facts) if self._settings.sandbox == "auto" else self._settings.sandbox
        plain = Project.WRITABLE if message.writable else Project.READABLE
        seen = plain if kind == "none" else boxed
        return msgspec.structs.replace(facts, project=seen, boxed=boxed)

    async def resume(
        self, message: messages.Resume, line: PilotLink
    ) -> tuple[Pilot, dict[str, Any]]:
        """Resume a pilot that lost its connection, or that was declared lost."""
        messages.check_version(message.protocol)
        messages.check_pilot(message.pilot)
        pilot = await self._table.find(message.pilot)
        if not hmac.compare_digest(pilot.digest, tokens.digest(message.key)):
            raise errors.Denied("this key is not that pilot's", hint="enrol again")
        pilot.line = line
        self._table.heard(pilot)
        await self._table.take_back(pilot)
        if pilot.state in OVER:
            raise errors.Denied(f"pilot {pilot.number} is {pilot.state}", hint="enrol again")
        running = set(message.running)
        held = {one.key: one for one in pilot.held.values()}
        why = "this attempt no longer belongs to this pilot"
        stops = [as_stop(key, why) for key in message.running if key not in held]
        stops += [as_stop(one.key, one.stopping) for one in held.values() if one.stopping]
        again = [one for key, one in held.items() if key not in running and not one.stopping]
        launches = await self._handler.again(pilot, again)
        found = self.terms(pilot) | {"stop": stops, "jobs": [msgspec.Raw(one) for one in launches]}
        return pilot, found

    def carry(self, message: messages.DataChannel) -> Pilot:
        """Find the pilot that wants a connection for the data of its attempts."""
        messages.check_version(message.protocol)
        pilot = self._table.pilots.get(message.pilot)
        known = pilot.digest if pilot else ""
        if pilot is None or not hmac.compare_digest(known, tokens.digest(message.key)):
            raise errors.Denied("this key is not that pilot's", hint="enrol again")
        return pilot

    def take_over(self, transport: asyncio.Transport, pilot: Pilot) -> None:
        """Move data on a connection from now on."""
        self._data.take_over(transport, pilot)

    async def leave(self, pilot: Pilot, reason: str) -> None:
        """Record that a pilot leaves; jobs that it still holds are queued again."""
        await self._table.move(pilot, PilotState.DOWN, text.show(reason)[:500])

    def cut(self, pilot: Pilot, line: PilotLink) -> None:
        """Note that the connection of a pilot is lost: it gets no work until it resumes."""
        if pilot.line is line:
            pilot.line = None
            self._table.close_down(pilot)
