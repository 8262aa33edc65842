"""How the site is, told from time to time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

from pilotage.agent.settings import Settings
from pilotage.base import errors, units
from pilotage.bus import wire
from pilotage.bus.model import Heartbeat
from pilotage.bus.port import Bus

_log = logging.getLogger("pilotage.edge")
#: Seconds after which a heartbeat that was not delivered is tried again, at most.
_AGAIN_S = 2.0


class Beat:
    """Publishes heartbeats: the first at once, and each with the facts of its moment."""

    def __init__(
        self, bus: Bus, settings: Callable[[], Settings],
        facts: Callable[[], Awaitable[Heartbeat]],
    ) -> None:  # fmt: skip
        """Take who knows how the site is."""
        self._bus = bus
        self._settings = settings
        self._facts = facts

    async def run(self) -> None:
        """Beat until cancelled; one that the bus does not take is old by the next."""
        trouble = ""
        while True:
            settings = self._settings()
            pause = units.seconds(settings.heartbeat)
            try:
                body = wire.encode(await self._facts())
                await self._bus.publish(settings.beat_topic, body)
                trouble = ""
            except errors.Unavailable as error:
                pause = min(pause, _AGAIN_S)
                if str(error) != trouble:
                    trouble = str(error)
                    _log.warning("the hub does not hear this site, trying again: %s", error)
            await anyio.sleep(pause)
