"""The one writer thread: requests that come during a transaction form the next one."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from pilotage.base import errors, text
from pilotage.store import sqlite

_T = TypeVar("_T")
_Step = tuple[Callable[[sqlite.Db], Any], Future[Any]]
_log = logging.getLogger("pilotage.store")
_PATIENCE_S = 1.0


class Writer:
    """Group commit: steps share a transaction and are answered when it is on disk."""

    def __init__(self, db: sqlite.Db) -> None:
        """Take over the connection; no other code may use it from now on."""
        # From now on there are two threads at least.
        text.prime_all()
        self._db = db
        self._steps: queue.SimpleQueue[_Step | None] = queue.SimpleQueue()
        self._closed = False
        self._hurry = threading.Event()
        #: What is asked for either comes before the end of the queue or is refused.
        self._asking = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        #: Why the store cannot be written now; empty when it can.
        self.trouble = ""
        #: Told, in the thread that writes, that something is on disk.
        self.on_commit: list[Callable[[], None]] = []
        self._thread.start()

    def submit(self, step: Callable[[sqlite.Db], _T]) -> Future[_T]:
        """Ask for a step; it may run more than once, and counts only when the future is done."""
        future: Future[_T] = Future()
        with self._asking:
            if self._closed:
                message = f"the store {self._db.path} is closed"
                future.set_exception(errors.StoreUnavailable(message))
            else:
                self._steps.put((step, future))
        return future

    async def run(self, step: Callable[[sqlite.Db], _T]) -> _T:
        """Run a step and wait until it is on disk, in an event loop."""
        from asyncio import wrap_future  # commands that end at once have no event loop

        return await wrap_future(self.submit(step))

    def do(self, step: Callable[[sqlite.Db], _T]) -> _T:
        """Run a step and wait until it is on disk; not for the event loop's thread."""
        return self.submit(step).result()

    @contextlib.contextmanager
    def telling(self, ring: Callable[[], object]) -> Iterator[None]:
        """Call a function after each commit while the block runs, in the writer thread."""

        def tell() -> None:
            # The commit may come after the event loop of the callback has ended.
            with contextlib.suppress(RuntimeError):
                ring()

        self.on_commit.append(tell)
        try:
            yield
        finally:
            self.on_commit.remove(tell)

    def hurry(self) -> None:
        """Stop retrying failed writes from now on."""
        self._hurry.set()

    def close(self) -> None:
        """Finish what was asked for and stop; unwritable steps are given up with their error."""
        self.hurry()
        with self._asking:
            self._closed = True
            self._steps.put(None)
        self._thread.join()
        self._db.close()

    def _run(self) -> None:
        while True:
            steps, last = self._gather()
            while steps:
                steps = self._commit(steps)
            if last:
                return

    def _gather(self) -> tuple[list[_Step], bool]:
        steps: list[_Step] = []
        item = self._steps.get()
        while item is not None:
            # From here on the step cannot be cancelled: its answer would be lost, not its effect.
            if item[1].set_running_or_notify_cancel():
                steps.append(item)
            try:
                item = self._steps.get_nowait()
            except queue.Empty:
                return steps, False
        return steps, True

    def _commit(self, steps: list[_Step]) -> list[_Step]:
        """Try to commit all steps; return those that must be tried again."""
        results: list[tuple[Future[Any], Any]] = []
        try:
            with self._db.transaction():
                for step, future in steps:
                    self._step(step, future, results)
        except errors.StoreUnavailable as error:
            return self._wait(steps, error)
        except Exception as error:  # noqa: BLE001 - as below; a damaged store must not end this thread
            for _, future in steps:
                if not future.done():
                    future.set_exception(error)
            return []
        self.trouble = ""
        for future, result in results:
            future.set_result(result)
        for tell in tuple(self.on_commit):
            tell()
        return []

    def _step(
        self, step: Callable[[sqlite.Db], Any], future: Future[Any], results: list[Any]
    ) -> None:
        try:
            with self._db.savepoint():
                result = step(self._db)
        except sqlite.OUTSIDE:
            raise
        except Exception as error:  # noqa: BLE001 - the caller gets the error, not this thread
            future.set_exception(error)
        else:
            results.append((future, result))

    def _wait(self, steps: list[_Step], error: errors.StoreUnavailable) -> list[_Step]:
        left = [step for step in steps if not step[1].done()]
        if self.trouble != error.message:
            _log.error("%s; %d steps wait", error.message, len(left))
        self.trouble = error.message
        if self._hurry.wait(_PATIENCE_S):
            for _, future in left:
                future.set_exception(error)
            return []
        return left
