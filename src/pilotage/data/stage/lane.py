"""A queue whose channel takes all that waits each time it is free."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from pilotage.base import errors

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Wish(Generic[K, R]):
    """Something asked for, by one or by many."""

    def __init__(self, key: K) -> None:
        self.key = key
        self.future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        # All who asked may have gone when it fails.
        self.future.add_done_callback(lambda done: done.cancelled() or done.exception())

    def grant(self, result: R) -> None:
        """Answer all who asked."""
        if not self.future.done():
            self.future.set_result(result)

    def refuse(self, error: BaseException) -> None:
        """Tell all who asked why not."""
        if not self.future.done():
            self.future.set_exception(error)


class Lane(Generic[K, R]):
    """Carries wishes in rounds; who asks for what is on its way already waits for the same."""

    def __init__(self, carry: Callable[[list[Wish[K, R]]], Awaitable[None]]) -> None:
        self._carry = carry
        self._asked: dict[K, Wish[K, R]] = {}
        self._waiting: list[Wish[K, R]] = []
        self._task: asyncio.Task[None] | None = None

    def ask(self, key: K) -> asyncio.Future[R]:
        """Wish for something; the future is shared and must not be cancelled."""
        if key not in self._asked:
            wish: Wish[K, R] = Wish(key)
            wish.future.add_done_callback(lambda _: self._asked.pop(key, None))
            self._asked[key] = wish
            self._waiting.append(wish)
            if self._task is None:
                self._task = asyncio.create_task(self._run())
        return self._asked[key].future

    async def close(self) -> None:
        """Give up; what is wished for is not granted."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for wish in list(self._asked.values()):
            wish.refuse(errors.Unavailable("the connection to the site is being closed"))

    async def _run(self) -> None:
        try:
            while self._waiting:
                wishes, self._waiting = self._waiting, []
                await self._round(wishes)
        finally:
            self._task = None

    async def _round(self, wishes: list[Wish[K, R]]) -> None:
        failure: BaseException = errors.Unavailable("the transfer was given up")
        try:
            await self._carry(wishes)
        except (errors.PilotageError, OSError) as error:
            failure = error
        finally:
            for wish in wishes:
                wish.refuse(failure)
