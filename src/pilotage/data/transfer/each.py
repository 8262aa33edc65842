"""Several files at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from pilotage.base.supervise import together
from pilotage.data.transfer.model import Item


async def each(items: Sequence[Item], act: Callable[[Item], Awaitable[None]], most: int) -> None:
    """Do something with each file, so many at once; the first trouble ends all."""
    todo = iter(items)

    async def work() -> None:
        for item in todo:
            await act(item)

    await together(work() for _ in range(min(most, len(items))))
