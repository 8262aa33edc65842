"""A pool for programs that expect one of `concurrent.futures`."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from pilotage.client.future import Future
from pilotage.client.sync import Client, connect

T = TypeVar("T")


class Executor(concurrent.futures.Executor):
    """Calls functions by way of a hub."""

    def __init__(self, client: Client | None = None, **options: Any) -> None:  # noqa: ANN401 - as `Options`
        """Use a client, or connect to the hub of the project here."""
        self._mine = client is None
        client = client or connect()
        self._base = client
        self._client = client.options(**options) if options else client
        self._lock = threading.Lock()
        self._away: set[concurrent.futures.Future[Any]] = set()
        self._over = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:  # noqa: ANN401
        """Have a function called."""
        with self._lock:
            self._check()
            future = self._client.submit(fn, *args, **kwargs)
            self._away.add(future)
        future.add_done_callback(self._forget)
        return future

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:  # fmt: skip
        """Call a function on all elements, and give the results in their order."""
        with self._lock:
            self._check()
        # One call at a time is what a pool does that knows no better.
        size = "auto" if chunksize == 1 else chunksize
        return self._client.map(fn, *iterables, chunksize=size, timeout=timeout)  # type: ignore[arg-type]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """Take no more calls, and wait for those that are away unless told otherwise."""
        with self._lock:
            self._over = True
            left = list(self._away)
        if cancel_futures:
            for future in left:
                future.cancel()
        if wait:
            concurrent.futures.wait(left)
        if self._mine and wait:
            self._base.close()

    def _check(self) -> None:
        if self._over:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _forget(self, future: concurrent.futures.Future[Any]) -> None:
        self._away.discard(future)
