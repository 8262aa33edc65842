"""The end of a job at a site: what it left comes home, and then it is over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from pilotage.base import crash, errors
from pilotage.batch import ending
from pilotage.batch.held import House
from pilotage.batch.job import Guest, Room
from pilotage.batch.party import End
from pilotage.batch.progress import Telling
from pilotage.batch.remote import Remote
from pilotage.job import retry
from pilotage.job.model import State
from pilotage.job.outcome import Cause

_log = logging.getLogger("pilotage.batch")
_AGAIN_S = 5.0


class Data(Protocol):
    """Brings what jobs read to the site, and what they leave home."""

    @property
    def apart(self) -> bool:
        """Whether jobs go to the batch system as soon as their own data is there."""
        ...

    def brings(self, one: Guest) -> bool:
        """Say whether anything must be at the site before a job can be submitted."""
        ...

    async def leaves(self, one: Guest, found: dict[str, Any]) -> bool:
        """Say whether anything must be done with what a job has left."""
        ...

    async def bring(self, one: Guest) -> None:
        """Have all that a job reads at the site, and note in the guest what it is."""

    async def shaped(self, one: Guest) -> None:
        """Hear that a job has got its shape: what it runs may depend on it."""

    async def home(self, one: Guest, room: Room, found: dict[str, Any]) -> None:
        """Bring home what a job has left."""

    async def logs(self, some: Sequence[tuple[Guest, Room]]) -> None:
        """Bring home what jobs have written to their two streams so far."""

    async def leave(self, one: Guest) -> None:
        """Give up what was held for a job."""


class Homing:
    """Brings home what jobs leave, however often the way is cut."""

    def __init__(self, remote: Remote, house: House, data: Data, telling: Telling) -> None:
        """Take the site, who is there, who carries, and who tells people."""
        self._remote = remote
        self._house = house
        self._data = data
        self._telling = telling

    async def close(self, one: Guest, room: Room, end: End) -> retry.AttemptEnd:
        """Bring home what a job left, and say what its end means."""
        verdict = ending.judge(one, end, self._house.stops.get(one.attempt, ""))
        if end.evidence is None:
            return verdict
        work = self._home(one, room, end.evidence, verdict)
        if (found := await self._house.while_wanted(one, work)) is not None:
            return found
        return self._called_off(one, verdict)

    def _called_off(self, one: Guest, verdict: retry.AttemptEnd) -> retry.AttemptEnd:
        """Say what it means that nobody wants the results of a job any more."""
        if not verdict.ok:
            return verdict
        words = self._house.stops[one.attempt]
        return msgspec.structs.replace(
            verdict, ok=False, stopped=True, message=words, cause=Cause.STOPPED
        )

    async def _home(
        self, one: Guest, room: Room, evidence: dict[str, Any], verdict: retry.AttemptEnd
    ) -> retry.AttemptEnd:
        while True:
            try:
                await self._remote.ready()
                await self._fetch(one, room, evidence, verdict)
            except errors.Unavailable as error:
                if one.attempt in self._house.stops:
                    return self._called_off(one, verdict)
                await self._telling.say([one.attempt], f"its results wait: {error}")
                await asyncio.sleep(_AGAIN_S)
            except (errors.PilotageError, OSError, LookupError, TypeError, ValueError) as error:
                # Also because of what the site says of them, which may be anything.
                message = f"its results cannot be brought home: {error}"
                _log.warning("job %s: %s", one.key, message)
                if not verdict.ok:
                    return verdict
                return msgspec.structs.replace(
                    verdict, ok=False, message=message, cause=Cause.OUTPUT
                )
            else:
                return verdict

    async def _fetch(
        self, one: Guest, room: Room, evidence: dict[str, Any], verdict: retry.AttemptEnd
    ) -> None:
        await self._data.logs([(one, room)])
        left = evidence.get("outputs") or {}
        if verdict.ok and not verdict.missing and await self._data.leaves(one, left):
            await self._telling.progress([one.attempt], State.STAGING_OUT)
            crash.point("site.staging_out")
            await self._data.home(one, room, left)
            crash.point("site.home")
