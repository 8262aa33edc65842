"""A channel that stays open for a while after its use: the next round begins at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Generic, Protocol, Self, TypeVar

#: It is a process at the site, and one of few places there: how long it may stand idle, in seconds.
_STAY_S = 5.0


class Stream(Protocol):
    """What can be used again."""

    @property
    def good(self) -> bool:
        """Whether it is open, and nothing went wrong with it."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, kind: type[BaseException] | None, *more: object) -> None: ...


S = TypeVar("S", bound=Stream)


class Spare(Generic[S]):
    """Opens a channel when one is needed; one at a time uses it."""

    def __init__(self, make: Callable[[], S]) -> None:
        self._make = make
        self._kept: S | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[S]:
        """Have a channel within the block; it is kept if all went well."""
        if self._kept is not None and not self._kept.good:
            self._part()
        if self._timer is not None:
            self._timer.cancel()
        stream, self._kept = self._kept, None
        if stream is None:
            stream = await self._make().__aenter__()
        try:
            yield stream
        except BaseException as error:
            await stream.__aexit__(type(error), error, None)
            raise
        if stream.good:
            self._kept = stream
            self._timer = asyncio.get_running_loop().call_later(_STAY_S, self._part)
        else:
            await stream.__aexit__(None, None, None)

    async def close(self) -> None:
        """Close what is kept."""
        self._part()
        if self._closing:
            await asyncio.wait(self._closing)

    def _part(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        stream, self._kept = self._kept, None
        if stream is not None:
            task = asyncio.create_task(stream.__aexit__(None, None, None))
            self._closing.add(task)
            task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled():
            # It is of no use any more, whatever became of it.
            task.exception()
