"""Data that needs nobody: inputs are URLs that sites can read, and nothing is looked at."""

from __future__ import annotations

from pilotage.bus.model import Input
from pilotage.flow.model import End
from pilotage.hub.flows.model import Order, Prepared


class Plain:
    """Passes URLs on."""

    async def prepare(self, order: Order) -> Prepared:
        """Name the inputs that are URLs."""
        takes = (feed.take for feed in order.inputs if feed.take.url)
        return Prepared(
            inputs=tuple(Input(url=one.url, path=one.path, sha256=one.sha256) for one in takes)
        )

    async def check(self, task: int, number: int) -> End | None:
        """Believe what the site says."""
        del task, number
        return End(state="done")
