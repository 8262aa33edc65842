"""The sender of files at a site, which may be asked again and again."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import fcntl
import os
from collections.abc import Sequence
from typing import Self

from pilotage.base import errors, text
from pilotage.data.stage.channel import PIPE, end, gone, lost, to_the_end, words
from pilotage.data.stage.inflow import Cut, Inflow
from pilotage.data.stage.landing import Landing
from pilotage.data.stage.model import Far


class Source:
    """A stream of files, each of which was asked for."""

    def __init__(self, far: Far, root: str, pool: concurrent.futures.Executor) -> None:
        self._far = far
        self._root = root
        self._pool = pool
        self._reading: list[asyncio.Future[None]] = []
        #: Whether it may be asked again: nothing was wrong so far.
        self.good = True

    async def __aenter__(self) -> Self:
        """Start the sender."""
        self._pipe, theirs = os.pipe()
        try:
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, PIPE)
            self._process = await self._far.bulk(["send", self._root], stdin=None, stdout=theirs)
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(theirs)
        self._said = asyncio.create_task(words(self._process))
        # Who has nothing more to say has ended.
        self._said.add_done_callback(self._ended)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it: with the process its end of the pipe goes, and with that who reads."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        end(self._process)
        try:
            await to_the_end(gone(self._process, self._said, *self._reading))
        finally:
            os.close(self._pipe)

    async def read(self, files: Sequence[Landing], inflow: Inflow) -> None:
        """Ask for files, and take them in."""
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(self._pool, inflow.run, os.dup(self._pipe))
        reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._reading = [reading]
        try:
            await self._ask(files)
            await asyncio.shield(reading)
        except Cut as error:
            end(self._process)
            raise lost(str(error) or await self._said) from error

    async def _ask(self, files: Sequence[Landing]) -> None:
        asked = [
            {"path": one.wanted.remote, "offset": one.offset, "size": one.wanted.size}
            for one in files
        ]
        if self._process.stdin is None:
            raise errors.PilotageError("the shell gave no pipe")
        # If it has ended already, its output tells more.
        with contextlib.suppress(OSError):
            self._process.stdin.write(f"{text.dump({'files': asked})}\n".encode())
            await self._process.stdin.drain()

    def _ended(self, _: object) -> None:
        self.good = False
