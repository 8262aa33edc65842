"""The starter of the moment; another takes its place when it dies."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, Callable

from .launcher import Launcher

_log = logging.getLogger("pilot")
#: So many starters in a row may die before one has run anything to its end.
_TRIES = 5


class Crew:
    """Has payloads started; whatever was ordered comes back as an end."""

    def __init__(self, make: Callable[[], Launcher]) -> None:
        self._make = make
        self._deaths = 0
        self._launcher: Launcher | None = None

    @property
    def launcher(self) -> Launcher | None:
        """Return the starter that lives, if there is one."""
        return self._launcher

    @property
    def broken(self) -> bool:
        """Tell whether there is no use in yet another starter."""
        return self._deaths >= _TRIES

    def start(self, launch: Mapping[str, Any]) -> None:
        """Have a payload started."""
        if self._launcher is None:
            self._launcher = self._make()
        self._launcher.start(launch)

    def stop(self, key: str, message: str, grace: float | None) -> None:
        """Have a payload ended."""
        if self._launcher is not None:
            self._launcher.stop(key, message, grace)

    def acknowledge(self, keys: list[str]) -> None:
        """Say that these ends need not be kept any more."""
        if self._launcher is not None and keys:
            self._launcher.acknowledge(keys)

    def flush(self) -> None:
        """Send what the starter can take now."""
        if self._launcher is not None:
            self._launcher.flush()

    def receive(self, held: Iterable[str]) -> list[dict[str, Any]]:
        """Take the reports that have arrived, and those that a dead starter owes."""
        if self._launcher is None:
            return []
        reports = [one for one in self._launcher.receive() if one["op"] != "ready"]
        if any(one["op"] == "ended" for one in reports):
            self._deaths = 0
        if self._launcher.gone:
            known = {one["key"] for one in reports if one["op"] == "ended"}
            reports += self._bury([key for key in held if key not in known])
        return reports

    def _bury(self, held: list[str]) -> list[dict[str, Any]]:
        words = self._launcher.bury() if self._launcher is not None else ""
        self._launcher = None
        self._deaths += 1
        _log.error("the starter died with %d payloads: %s", len(held), words or "it said nothing")
        return [lost(key) for key in held]

    def close(self) -> None:
        """End the starter and all that it runs."""
        if self._launcher is not None:
            self._launcher.close()
            self._launcher = None


def lost(key: str) -> dict[str, Any]:
    """Report an end that nobody saw."""
    return over(key, "lost", "its starter died, so nobody saw how it ended")


def over(key: str, reason: str, message: str) -> dict[str, Any]:
    """Report an end without a process."""
    facts = {"op": "ended", "key": key, "time": time.time(), "exit": None, "signal": None}
    return {**facts, "reason": reason, "message": message, "usage": None}
