"""Standard output and error of jobs at a site, fetched while they run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import anyio.to_thread

from pilotage.batch.connection import SiteConnection
from pilotage.batch.job import BatchJob, ItemFolder
from pilotage.job import moves
from pilotage.run import output

_STREAMS = ("stdout", "stderr")
#: Bytes of one stream that are fetched, in all and at once.
_MOST = 10 << 20
_AT_ONCE = 1 << 20
#: Jobs whose streams are asked for together.
_TOGETHER = 64


class Streams:
    """Fetches the output of all jobs of a site."""

    def __init__(self, remote: SiteConnection, state: Path) -> None:
        """Keep it with the attempts of the project whose state folder is `state`."""
        self._remote = remote
        self._jobs = str(state / "jobs")

    async def bring(self, some: Sequence[tuple[BatchJob, ItemFolder]]) -> None:
        """Fetch what jobs have written so far."""
        for at in range(0, len(some), _TOGETHER):
            left = list(some[at : at + _TOGETHER])
            while left:
                left = await self._next(left)

    async def _next(
        self, some: list[tuple[BatchJob, ItemFolder]]
    ) -> list[tuple[BatchJob, ItemFolder]]:
        """Bring the next piece of each; return those of which there may be more."""
        streams = [(one, folders, name) for one, folders in some for name in _STREAMS]
        sizes = [_size(self._file(one, name)) for one, _, name in streams]
        most = _AT_ONCE // len(some)
        wanted = [
            [f"{folders.run}/{name}", at, max(0, min(most, _MOST - at))]
            for (_, folders, name), at in zip(streams, sizes, strict=True)
        ]
        tails = (await self._remote.call("tails", files=wanted))["tails"]

        def write() -> list[tuple[BatchJob, ItemFolder]]:
            again = {}
            for (one, folders, name), at, data in zip(streams, sizes, tails, strict=True):
                if data and at < _MOST:
                    output.write(self._jobs, one.claim.job, one.claim.attempt, name, at, data)
                    # On a full disk, to ask again would never end.
                    if _size(self._file(one, name)) >= at + most:
                        again[one.attempt] = (one, folders)
            return list(again.values())

        return await anyio.to_thread.run_sync(write)

    def _file(self, one: BatchJob, name: str) -> str:
        return f"{moves.attempt_dir(self._jobs, one.claim.job, one.claim.attempt)}/{name}"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
