"""Queue of staging requests, its reused channel, and its progress meter."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from typing import Any, Generic, Protocol, Self, TypeVar

from pilotage.base import errors
from pilotage.data.stage.model import Report

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class StagingRequest(Generic[K, R]):
    """A request that callers may share."""

    def __init__(self, key: K) -> None:
        self.key = key
        self.future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        # All callers may have gone when it fails.
        self.future.add_done_callback(lambda done: done.cancelled() or done.exception())

    def grant(self, result: R) -> None:
        """Answer all callers."""
        if not self.future.done():
            self.future.set_result(result)

    def refuse(self, error: BaseException) -> None:
        """Fail all callers with an error."""
        if not self.future.done():
            self.future.set_exception(error)


class RequestQueue(Generic[K, R]):
    """Serves requests in rounds; equal requests share one result."""

    def __init__(self, carry: Callable[[list[StagingRequest[K, R]]], Awaitable[None]]) -> None:
        self._carry = carry
        self._asked: dict[K, StagingRequest[K, R]] = {}
        self._waiting: list[StagingRequest[K, R]] = []
        self._task: asyncio.Task[None] | None = None

    def ask(self, key: K) -> asyncio.Future[R]:
        """Queue a request; the future is shared and must not be cancelled."""
        if key not in self._asked:
            request: StagingRequest[K, R] = StagingRequest(key)
            request.future.add_done_callback(lambda _: self._asked.pop(key, None))
            self._asked[key] = request
            self._waiting.append(request)
            if self._task is None:
                self._task = asyncio.create_task(self._run())
        return self._asked[key].future

    async def close(self) -> None:
        """Stop, and fail all open requests."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for request in list(self._asked.values()):
            request.refuse(errors.Unavailable("the connection to the site is being closed"))

    async def _run(self) -> None:
        try:
            while self._waiting:
                requests, self._waiting = self._waiting, []
                await self._round(requests)
        finally:
            self._task = None

    async def _round(self, requests: list[StagingRequest[K, R]]) -> None:
        failure: BaseException = errors.Unavailable("the transfer was cancelled")
        try:
            await self._carry(requests)
        except (errors.PilotageError, OSError) as error:
            failure = error
        finally:
            for request in requests:
                request.refuse(failure)


#: Seconds that an idle channel stays open: it is a process at the site, where few are allowed.
_STAY_S = 5.0


class Reusable(Protocol):
    """A stream that can be used again."""

    @property
    def good(self) -> bool:
        """Whether it is open, and nothing went wrong with it."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, kind: type[BaseException] | None, *more: object) -> None: ...


S = TypeVar("S", bound=Reusable)


class IdleChannel(Generic[S]):
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
            # It is not needed any more, whatever its end was.
            task.exception()


class ProgressMeter:
    """Counts bytes; starts from zero when nothing is on its way."""

    def __init__(self, report: Report | None) -> None:
        self._report = report
        self._open = 0
        self._done = 0
        self._total = 0

    def add(self, size: int, until: asyncio.Future[Any]) -> None:
        """Note bytes that will move before a future is done."""
        self._open += 1
        self._total += size
        until.add_done_callback(self._end)

    def move(self, count: int) -> None:
        """Note bytes that have moved."""
        self._done += count
        if self._report is not None:
            self._report(self._done, max(self._total, self._done))

    def _end(self, _: object) -> None:
        self._open -= 1
        if not self._open:
            self._done = self._total = 0
