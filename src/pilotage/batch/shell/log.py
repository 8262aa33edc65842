"""What an `ssh` writes of itself, apart from what the program behind it writes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from asyncio.subprocess import Process
from typing import Self

_GLANCE_S = 0.05


class Log:
    """A pipe with a name, read until what it says is enough."""

    def __init__(self, path: str) -> None:
        """Take a pipe that is there; it is gone at the end."""
        self.path = path
        self.text = ""

    def __enter__(self) -> Self:
        # Also for writing, so that it has no end before the other side has opened it.
        self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._fd, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        os.unlink(self.path)

    async def says(self, sign: str, process: Process, patience: float) -> bool:
        """Wait for a sign; say no if the process ends, or is silent for too long."""
        try:
            async with asyncio.timeout(patience):
                # `Process.wait` would wait for its pipes, too, which others may hold open.
                while sign not in self.text and process.returncode is None:
                    self._news.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._news.wait(), _GLANCE_S)
        except TimeoutError:
            self.text += "\nConnection timed out"
            return False
        self._read()
        return sign in self.text

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.text += os.read(self._fd, 1 << 16).decode(errors="replace")
        self._news.set()
