"""Keeps an eye on sites that say nothing, while the broker is heard itself."""

from __future__ import annotations

import functools
from asyncio import wrap_future
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio

from pilotage.hub.flows import watch
from pilotage.hub.flows.edge import Address
from pilotage.hub.flows.watch import Patience
from pilotage.store import Writer

if TYPE_CHECKING:
    from pilotage.bus.amqp.bus import AmqpBus


class Silence:
    """Asks sites, and gives them up."""

    def __init__(
        self, writer: Writer, patience: Patience, now: Callable[[], float],
        ring: Callable[[], None],
    ) -> None:  # fmt: skip
        """Get ready; `ring` is called when there is something to send."""
        self._writer, self._patience, self._now, self._ring = writer, patience, now, ring

    async def watch(self, bus: AmqpBus, address: Address) -> None:
        """Watch while there is a bus; what it does not carry is no silence of sites."""
        since: float | None = None
        while True:
            if bus.trouble:
                since = None
            elif since is None:
                since = self._now()
            else:
                await self._look(since, address)
            await anyio.sleep(self._patience.look)

    async def _look(self, since: float, address: Address) -> None:
        now = self._now()
        asking = functools.partial(watch.ask, address=address, patience=self._patience, now=now)
        leaving = functools.partial(watch.give_up, patience=self._patience, since=since, now=now)
        done = [await wrap_future(self._writer.submit(step)) for step in (asking, leaving)]
        if any(done):
            self._ring()
