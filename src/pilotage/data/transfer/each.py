"""Several files at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pilotage.data.transfer.model import Item


async def each(items: Sequence[Item], act: Callable[[Item], Awaitable[None]], most: int) -> None:
    """Do something with each file, so many at once; the first trouble ends all."""
    todo = iter(items)

    async def work() -> None:
        for item in todo:
            await act(item)

    workers = [asyncio.create_task(work()) for _ in range(min(most, len(items)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
