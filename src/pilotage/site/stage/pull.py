"""Bring files home from a site, checked before anybody sees them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import fcntl
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from pilotage import errors, text
from pilotage.site.stage import landing, place
from pilotage.site.stage.channel import PIPE, end, gone, lost, to_the_end, words
from pilotage.site.stage.inflow import Cut, Inflow, trouble
from pilotage.site.stage.lane import Lane, Wish
from pilotage.site.stage.meter import Meter
from pilotage.site.stage.model import BIG, Far, Folder, Report, Wanted

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
        self._small: Lane[Wanted, None] = Lane(self._carry)
        self._big: Lane[Wanted, None] = Lane(self._carry)

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

    async def _carry(self, wishes: list[_Wish]) -> None:
        for start in range(0, len(wishes), _MOST_FILES):
            await self._channel(wishes[start : start + _MOST_FILES])

    async def _channel(self, wishes: list[_Wish]) -> None:
        """Bring some files by one channel."""
        loop = asyncio.get_running_loop()
        files = await asyncio.to_thread(lambda: [landing.Landing(wish.key) for wish in wishes])
        by_key = {wish.key: wish for wish in wishes}
        inflow = Inflow(
            files,
            lambda one, error: _tell(loop, _end, by_key[one.wanted], error),
            lambda count: _tell(loop, self._meter.move, count),
        )
        ours, theirs = os.pipe()
        try:
            with contextlib.suppress(OSError):
                fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, PIPE)
            process = await self._far.bulk(["send", self._root], stdin=None, stdout=theirs)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        for wish, file in zip(wishes, files, strict=True):
            self._meter.add(wish.key.size - file.offset, wish.future)
        reading = loop.run_in_executor(self._pool, inflow.run, ours)
        reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        said = asyncio.create_task(words(process))
        try:
            await _ask_for(process, files)
            await asyncio.shield(reading)
        except Cut as error:
            end(process)
            raise lost(str(error) or await said) from error
        finally:
            # With the process its end of the pipe goes, and with that the thread.
            end(process)
            await to_the_end(gone(process, reading, said))


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


async def _ask_for(process: asyncio.subprocess.Process, files: Sequence[landing.Landing]) -> None:
    asked = [
        {"path": one.wanted.remote, "offset": one.offset, "size": one.wanted.size} for one in files
    ]
    if process.stdin is None:
        raise errors.PilotageError("the shell gave no pipe")
    # If it has ended already, its output tells more.
    with contextlib.suppress(OSError):
        process.stdin.write(f"{text.dump({'files': asked})}\n".encode())
        await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()
