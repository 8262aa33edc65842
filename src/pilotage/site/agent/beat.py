"""How the site is, told from time to time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

from pilotage import errors, units
from pilotage.bus import wire
from pilotage.bus.model import Heartbeat
from pilotage.bus.port import Bus
from pilotage.site.agent.settings import Settings

_log = logging.getLogger("pilotage.edge")


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
            try:
                body = wire.encode(await self._facts())
                await self._bus.publish(settings.beat_topic, body)
                trouble = ""
            except errors.Unavailable as error:
                if str(error) != trouble:
                    trouble = str(error)
                    _log.warning("nobody hears how the site is: %s", error)
            await anyio.sleep(units.seconds(settings.heartbeat))
