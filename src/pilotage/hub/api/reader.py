"""Read the store in worker threads, each with its own connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from pilotage.store import Db
from pilotage.store.sqlite import explained

_T = TypeVar("_T")
_THREADS = 4


@dataclass(eq=False)
class Readers:
    """A few connections that take turns."""

    _open: Callable[[], Db]
    _free: list[Db] = field(default_factory=list, init=False)
    _slots: anyio.CapacityLimiter = field(
        default_factory=lambda: anyio.CapacityLimiter(_THREADS), init=False
    )

    async def ask(self, question: Callable[[Db], _T]) -> _T:
        """Read in a worker thread; all that one question reads is of one moment."""
        return await anyio.to_thread.run_sync(self._ask, question, limiter=self._slots)

    def _ask(self, question: Callable[[Db], _T]) -> _T:
        # Taking the last of a list is one step for all threads.
        try:
            db = self._free.pop()
        except IndexError:
            db = self._open()
        with explained(db.path), db.savepoint():
            found = question(db)
        # One that failed is not used again.
        self._free.append(db)
        return found

    def close(self) -> None:
        """Close the store."""
        while self._free:
            self._free.pop().close()


class Memo:
    """Remembers what is costly to read: the longer it took, the longer it counts."""

    def __init__(self, least: float = 1.0, times: float = 20.0) -> None:
        """Keep each answer for `times` as long as it took, and for `least` seconds at least."""
        self._least = least
        self._times = times
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Any]] = {}

    def get(self, name: str, read: Callable[[], _T]) -> _T:
        """Return the kept answer, or read it."""
        with self._lock:
            until, found = self._known.get(name, (0.0, None))
            began = time.monotonic()
            if began >= until:
                found = read()
                took = time.monotonic() - began
                self._known[name] = (began + max(self._least, took * self._times), found)
            answer: _T = found
            return answer
