"""The one place of pools that sleeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

#: Seconds between two looks at most and at least, whatever is asked for.
LONGEST = 60.0
SHORTEST = 0.2


async def steer(tick: Callable[[], Awaitable[float]]) -> None:
    """Call `tick` until cancelled; it returns the seconds until it wants to be called again."""
    while True:
        wait = await tick()
        await anyio.sleep(min(LONGEST, max(SHORTEST, wait)))
