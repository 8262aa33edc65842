"""Every bus that keeps the promises of `pilotage.bus.port`; another one is one more entry here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from pilotage.bus.memory import MemoryBus
from pilotage.bus.port import Bus

#: Returns the bus as a user of that name sees it.
Known = Callable[[str], Bus]


@asynccontextmanager
async def memory() -> AsyncIterator[Known]:
    yield MemoryBus().known_as


BUSES: dict[str, Callable[[], AbstractAsyncContextManager[Known]]] = {"memory": memory}
