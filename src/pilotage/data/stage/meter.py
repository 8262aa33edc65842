"""How far transfers have got, for people."""

from __future__ import annotations

import asyncio
from typing import Any

from pilotage.data.stage.model import Report


class Meter:
    """Counts bytes; begins anew when nothing is on its way."""

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
