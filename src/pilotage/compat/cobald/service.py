"""Pools of others with a life of their own: COBalD's services.

A service has `run`, which COBalD's daemon calls by the library that the service names. Here each
has a thread of its own, and one that fails is started again; in COBalD all would end with it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

from pilotage.pool.guarded import RETRY

_log = logging.getLogger("pilotage.pool")
#: A service that ran for so many seconds has not failed as it started.
_WELL_S = 120.0


class Services:
    """What runs beside a pipeline."""

    def __init__(self) -> None:
        """Run nothing before `start`."""
        self._waiting: list[Any] | None = []

    def forget(self) -> None:
        """Let go of what was made for nothing."""
        if self._waiting is not None:
            self._waiting.clear()

    def adopt(self, made: Any) -> None:  # noqa: ANN401 - whatever others make
        """Run something if it is a service: at once, or with all others."""
        if not hasattr(made, "__service_unit__") or not callable(getattr(made, "run", None)):
            return
        if self._waiting is None:
            threading.Thread(target=_keep, args=(made,), daemon=True).start()
        else:
            self._waiting.append(made)

    def start(self) -> None:
        """Run all services, and from now on each as it is made."""
        found, self._waiting = self._waiting or [], None
        for one in found:
            self.adopt(one)


def _keep(service: Any) -> None:  # noqa: ANN401
    """Run a service until it ends by itself."""
    name, failures = type(service).__qualname__, 0
    while True:
        began = time.monotonic()
        try:
            _run(service)
        except Exception as error:  # noqa: BLE001 - code of others: the rest goes on
            failures = 1 if time.monotonic() - began > _WELL_S else failures + 1
            wait = RETRY.bound(failures)
            _log.error("%s has failed and is started again in %g s: %s", name, wait, error)
            time.sleep(wait)
        else:
            return


def _run(service: Any) -> None:  # noqa: ANN401
    flavour = service.__service_unit__.flavour
    match getattr(flavour, "__name__", ""):
        case "trio":
            # It came with the service.
            flavour.run(service.run)
        case "asyncio":
            asyncio.run(service.run())
        case _:
            service.run()
