"""Wake a waiting task from any thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

_LONGEST_WAIT_S = 60.0


class Wakeup:
    """An event that can be set again and again, from any thread."""

    def __init__(self, call_soon: Callable[..., Any]) -> None:
        """Set it through the event loop's `call_soon_threadsafe`."""
        self._call_soon = call_soon
        self._event = anyio.Event()

    def set(self) -> None:
        """Wake the task that waits."""
        self._call_soon(self._set)

    def _set(self) -> None:
        self._event.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until it is set, or for some time."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        self._event = anyio.Event()


def patience(due: float | None, now: float) -> float | None:
    """Return how long to wait for a moment, at most a minute: clocks are set, machines sleep."""
    return None if due is None else min(max(0.0, due - now), _LONGEST_WAIT_S)
