"""Hear that another process has changed the store of a project."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import anyio


async def listen(pipe: Path, heard: Callable[[], None]) -> None:
    """Call `heard` for each poke of another process, until cancelled."""
    # Opened for writing too: a pipe whose last writer left would otherwise read as ended for ever.
    end = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            await anyio.wait_readable(end)
            os.read(end, 65536)
            heard()
    finally:
        os.close(end)
