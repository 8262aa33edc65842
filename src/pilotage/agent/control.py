"""Who wants jobs otherwise, or the site: obeyed if they may, and answered."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping

import anyio
import msgspec

from pilotage.agent.obey import Obeyed, obey
from pilotage.agent.settings import Settings
from pilotage.base import crash, errors
from pilotage.bus.model import Wanted
from pilotage.bus.port import Bus, Message
from pilotage.store import Writer

_log = logging.getLogger("pilotage.edge")
_PAUSE_S = 2.0
_AHEAD = 20


class Controls:
    """Hears controls of the site."""

    def __init__(
        self, bus: Bus, writer: Writer, settings: Callable[[], Settings],
        now: Callable[[], float], poke: Callable[[], None],
        follow: Callable[[Mapping[int, Wanted], float], None],
    ) -> None:  # fmt: skip
        """Get ready; `poke` is called when something was changed.

        `follow` is given jobs whose streams are to be sent, and for how long.
        """
        self._bus = bus
        self._writer = writer
        self._settings = settings
        self._now = now
        self._poke = poke
        self._follow = follow

    async def run(self) -> None:
        """Obey until cancelled."""
        trouble = ""
        while True:
            try:
                topic = self._settings().control_topic
                async with self._bus.subscribe(topic, ahead=_AHEAD) as incoming:
                    async for message in incoming:
                        await self._one(message)
                        trouble = ""
            except errors.Unavailable as error:
                if str(error) != trouble:
                    trouble = str(error)
                    _log.warning("controls: %s", error)
            await anyio.sleep(_PAUSE_S)

    async def _one(self, message: Message) -> None:
        plain = msgspec.structs.replace(message, reply=_nobody)
        step = functools.partial(obey, message=plain, settings=self._settings(), now=self._now())
        obeyed: Obeyed = await self._writer.run(step)
        crash.point("edge.obeyed")
        await self._bus.ack(message)
        if obeyed.changed:
            self._poke()
        if obeyed.follow:
            self._follow(obeyed.follow, obeyed.seconds)
        for body in obeyed.answers:
            await message.reply(body)


async def _nobody(_: bytes) -> None:
    """Answer to nobody: the store must not wait for the bus."""
