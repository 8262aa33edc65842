"""Bring files home from a site, checked before anybody sees them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from pilotage.data.stage import landing, place
from pilotage.data.stage.inflow import Inflow
from pilotage.data.stage.lane import Lane, Wish
from pilotage.data.stage.meter import Meter
from pilotage.data.stage.model import BIG, Far, Folder, Report, Wanted
from pilotage.data.stage.source import Source
from pilotage.data.stage.spare import Spare
from pilotage.data.transfer.trouble import trouble

T = TypeVar("T")

_ATTEMPTS = 2
_MOST_FILES = 1000

_Wish = Wish[Wanted, None]


class Puller:
    """Brings files home; small ones do not wait behind big ones."""

    def __init__(self, far: Far, root: str, *, report: Report | None = None) -> None:
        self._far = far
        self._root = root
        self._meter = Meter(report)
        self._pool = concurrent.futures.ThreadPoolExecutor(2, "pull")
        self._spare = Spare(self._source)
        self._small: Lane[Wanted, None] = Lane(self._carry_small)
        self._big: Lane[Wanted, None] = Lane(self._carry_big)

    async def fetch(self, wanted: Sequence[Wanted | Folder]) -> None:
        """Return when all are in their places, on disk for certain.

        Raises `Unavailable` if the connection is lost or the disk here is full: the next call goes
        on where this one ended. Raises `Conflict` for a file that is not what was announced.
        """
        places = [await _here(place.lay_out, one) for one in wanted]
        left = list(dict.fromkeys(file for one in places for file in one.files))
        for _ in range(_ATTEMPTS):
            left = await self._ask(left)
            if not left:
                break
        else:
            raise landing.changed(left[0])
        for one in places:
            await _here(one.show)

    async def close(self) -> None:
        """Give up what is on its way; what has arrived is gone on with next time."""
        await self._small.close()
        await self._big.close()
        await self._spare.close()
        self._pool.shutdown(wait=False)

    def _lane(self, one: Wanted) -> Lane[Wanted, None]:
        return self._big if one.size >= BIG else self._small

    async def _ask(self, files: Sequence[Wanted]) -> list[Wanted]:
        """Wait for files; return those that must be tried again from their first byte."""
        asked = {one: self._lane(one).ask(one) for one in files}
        if asked:
            await asyncio.wait(asked.values())
        again = []
        for one, future in asked.items():
            try:
                future.result()
            except landing.Wrong:
                again.append(one)
        return again

    async def _carry_small(self, wishes: list[_Wish]) -> None:
        for start in range(0, len(wishes), _MOST_FILES):
            async with self._spare.use() as source:
                await self._bring(wishes[start : start + _MOST_FILES], source)

    async def _carry_big(self, wishes: list[_Wish]) -> None:
        for start in range(0, len(wishes), _MOST_FILES):
            async with self._source() as source:
                await self._bring(wishes[start : start + _MOST_FILES], source)

    def _source(self) -> Source:
        return Source(self._far, self._root, self._pool)

    async def _bring(self, wishes: list[_Wish], source: Source) -> None:
        """Bring some files by one channel."""
        loop = asyncio.get_running_loop()
        files = await asyncio.to_thread(lambda: [landing.Landing(wish.key) for wish in wishes])
        by_key = {wish.key: wish for wish in wishes}

        def ended(one: landing.Landing, error: Exception | None) -> None:
            source.good = source.good and error is None
            _tell(loop, _end, by_key[one.wanted], error)

        inflow = Inflow(files, ended, lambda count: _tell(loop, self._meter.move, count))
        for wish, file in zip(wishes, files, strict=True):
            self._meter.add(wish.key.size - file.offset, wish.future)
        await source.read(files, inflow)


async def _here(act: Callable[..., T], *values: object) -> T:
    """Do something with files here, in a thread."""
    try:
        return await asyncio.to_thread(act, *values)
    except OSError as error:
        raise trouble(error) from error


def _end(wish: _Wish, error: Exception | None) -> None:
    if error is None:
        wish.grant(None)
    else:
        wish.refuse(error)


def _tell(loop: asyncio.AbstractEventLoop, act: Callable[..., None], *values: object) -> None:
    # The loop may have ended before the thread.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(act, *values)
