"""Futures of the synchronous client."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

from pilotage.base import errors
from pilotage.client.model import Delivery, Return, Ticket

T = TypeVar("T")
_log = logging.getLogger("pilotage.client")


class Future(concurrent.futures.Future[T], Ticket):
    """The result of one call or job, now or later."""

    def __init__(self, drop: Callable[[Ticket], None]) -> None:
        """Begin; `drop` is called when the result is no longer wanted."""
        super().__init__()
        self._drop = drop

    @property
    def job(self) -> int | None:
        """The job that holds the call; none before the hub has it."""
        return self.parcel.job if self.parcel else None

    def cancel(self) -> bool:
        """Want the result no more; the job is cancelled unless other calls are in it."""
        if not super().cancel():
            return False
        if self.wanted:
            self._drop(self)
            self.set_running_or_notify_cancel()
        return True

    def deliver(self, found: Delivery) -> None:
        """Take the result."""
        if found.left:
            self.left = found.left
            tell(found)
        error = found.error
        if error is None and found.returns and found.returns[0].error is not None:
            error = found.returns[0].error.exception(found.job)
        # It may be cancelled at this very moment.
        with suppress(concurrent.futures.InvalidStateError):
            if error is not None:
                self.set_exception(error)
            else:
                self.set_result(found.returns[0].ok if found.returns else found.answer)


class BatchFuture(Ticket, Generic[T]):
    """The results of many calls, in order."""

    def __init__(self, count: int) -> None:
        self._found: list[Return | Delivery | None] = [None] * count
        self._news = threading.Condition()

    def deliver(self, found: Delivery) -> None:
        """Take some of the results."""
        if found.left:
            tell(found)
        with self._news:
            if found.error is None:
                self._found[found.at : found.at + len(found.returns)] = found.returns
            else:
                self._found[found.at : found.at + found.count] = [found] * found.count
            self._news.notify_all()

    def results(self, drop: Callable[[Ticket], None], timeout: float | None) -> Iterator[T]:
        """Give the results in order, each as soon as it and all before it are there."""
        end = None if timeout is None else time.monotonic() + timeout
        found = self._found
        try:
            for at in range(len(found)):
                if found[at] is None:
                    self._wait(at, end)
                yield value(found[at])
                found[at] = None
        finally:
            drop(self)

    def _wait(self, at: int, end: float | None) -> None:
        with self._news:
            while self._found[at] is None:
                left = None if end is None else end - time.monotonic()
                if (left is not None and left <= 0) or not self._news.wait(left):
                    raise errors.TimedOut("the results did not come in time")


def tell(found: Delivery) -> None:
    """Log which files calls have left undeclared."""
    names = ", ".join(map(repr, found.left))
    _log.warning(
        "job %s: %s was left in the folder of the call and is gone: declare it as an output",
        found.job, names,
    )  # fmt: skip


def value(found: Return | Delivery | None) -> Any:  # noqa: ANN401 - whatever was returned
    """Return what a call returned, or raise what it raised."""
    if isinstance(found, Return):
        if found.error is None:
            return found.ok
        raise found.error.exception(None)
    if found is None or found.error is None:
        raise AssertionError("a result was asked for that is not there")
    raise found.error
