"""Call items off."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from . import alive
from .place import Place


def stop(place: Place, index: int) -> None:
    """Call one item off; it is no error if it is over."""
    called_off = {"cancelled": True, "time": time.time()}
    if place.claim(f"{index}.begun", called_off) or place.has(f"{index}.over"):
        return
    place.claim(f"{index}.stop", {"time": time.time()})
    keeper, runs = place.read("keeper.json"), place.read(f"{index}.runs")
    if keeper is None or runs is None or alive.elsewhere(keeper) or alive.lives(keeper):
        return
    # Nobody but us is left to end it.
    if alive.lives(runs):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(runs["pid"], signal.SIGKILL)
    place.claim(f"{index}.over", {"cause": "cancelled", "time": time.time()})
