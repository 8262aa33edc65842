"""Fetch files from a site; they become visible after they are verified."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Self, TypeVar

from pilotage.base import errors, text
from pilotage.data.stage.channel import PIPE, end, gone, lost, to_the_end, words
from pilotage.data.stage.landing import DigestMismatch, Landing, changed, lay_out
from pilotage.data.stage.model import BIG, Report, StagingSite, WantedFile, WantedFolder
from pilotage.data.stage.requests import IdleChannel, ProgressMeter, RequestQueue, StagingRequest
from pilotage.data.transfer.failures import of_writing

T = TypeVar("T")

_ATTEMPTS = 2
_MOST_FILES = 1000

_Request = StagingRequest[WantedFile, None]


class Puller:
    """Fetches files; small ones do not wait behind big ones."""

    def __init__(self, site: StagingSite, root: str, *, report: Report | None = None) -> None:
        self._site = site
        self._root = root
        self._meter = ProgressMeter(report)
        self._pool = concurrent.futures.ThreadPoolExecutor(2, "pull")
        self._idle = IdleChannel(self._source)
        self._small: RequestQueue[WantedFile, None] = RequestQueue(self._carry_small)
        self._big: RequestQueue[WantedFile, None] = RequestQueue(self._carry_big)

    async def fetch(self, wanted: Sequence[WantedFile | WantedFolder]) -> None:
        """Return when all are in their places, on disk for certain.

        Raises `Unavailable` if the connection is lost or the disk here is full: the next call goes
        on where this one ended. Raises `Conflict` for a file that is not what was announced.
        """
        places = [await _here(lay_out, one) for one in wanted]
        left = list(dict.fromkeys(file for one in places for file in one.files))
        for _ in range(_ATTEMPTS):
            left = await self._ask(left)
            if not left:
                break
        else:
            raise changed(left[0])
        for one in places:
            await _here(one.show)

    async def close(self) -> None:
        """Stop transfers; what has arrived is resumed next time."""
        await self._small.close()
        await self._big.close()
        await self._idle.close()
        self._pool.shutdown(wait=False)

    def _queue(self, one: WantedFile) -> RequestQueue[WantedFile, None]:
        return self._big if one.size >= BIG else self._small

    async def _ask(self, files: Sequence[WantedFile]) -> list[WantedFile]:
        """Wait for files; return those that must be tried again from their first byte."""
        asked = {one: self._queue(one).ask(one) for one in files}
        if asked:
            await asyncio.wait(asked.values())
        again = []
        for one, future in asked.items():
            try:
                future.result()
            except DigestMismatch:
                again.append(one)
        return again

    async def _carry_small(self, requests: list[_Request]) -> None:
        for start in range(0, len(requests), _MOST_FILES):
            async with self._idle.use() as source:
                await self._bring(requests[start : start + _MOST_FILES], source)

    async def _carry_big(self, requests: list[_Request]) -> None:
        for start in range(0, len(requests), _MOST_FILES):
            async with self._source() as source:
                await self._bring(requests[start : start + _MOST_FILES], source)

    def _source(self) -> SiteSender:
        return SiteSender(self._site, self._root, self._pool)

    async def _bring(self, requests: list[_Request], source: SiteSender) -> None:
        """Bring some files by one channel."""
        loop = asyncio.get_running_loop()
        files = await asyncio.to_thread(lambda: [Landing(request.key) for request in requests])
        by_key = {request.key: request for request in requests}

        def ended(one: Landing, error: Exception | None) -> None:
            source.good = source.good and error is None
            _tell(loop, _end, by_key[one.wanted], error)

        receiver = FileReceiver(files, ended, lambda count: _tell(loop, self._meter.move, count))
        for request, file in zip(requests, files, strict=True):
            self._meter.add(request.key.size - file.offset, request.future)
        await source.read(files, receiver)


async def _here(act: Callable[..., T], *values: object) -> T:
    """Do something with files here, in a thread."""
    try:
        return await asyncio.to_thread(act, *values)
    except OSError as error:
        raise of_writing(error) from error


def _end(request: _Request, error: Exception | None) -> None:
    if error is None:
        request.grant(None)
    else:
        request.refuse(error)


def _tell(loop: asyncio.AbstractEventLoop, act: Callable[..., None], *values: object) -> None:
    # The loop may have ended before the thread.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(act, *values)


class SiteSender:
    """A stream of files, each of which was asked for."""

    def __init__(self, site: StagingSite, root: str, pool: concurrent.futures.Executor) -> None:
        self._site = site
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
            self._process = await self._site.bulk(["send", self._root], stdin=None, stdout=theirs)
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(theirs)
        self._said = asyncio.create_task(words(self._process))
        # The end of its output means that it has ended.
        self._said.add_done_callback(self._ended)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the process, which closes its end of the pipe and ends the reader."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        end(self._process)
        try:
            await to_the_end(gone(self._process, self._said, *self._reading))
        finally:
            os.close(self._pipe)

    async def read(self, files: Sequence[Landing], receiver: FileReceiver) -> None:
        """Request files, and receive them."""
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(self._pool, receiver.run, os.dup(self._pipe))
        reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._reading = [reading]
        try:
            await self._ask(files)
            await asyncio.shield(reading)
        except StreamCut as error:
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


_CHUNK = 1 << 20
_LONGEST_LINE = 1 << 16
#: Files that wait to be on disk for certain; each is open.
_FINISHERS = 4
_UNFINISHED = 32

#: Told of each file that has ended, well or not.
Ended = Callable[[Landing, Exception | None], None]


class StreamCut(Exception):
    """The stream has ended too early, or is not what was agreed."""


class FileReceiver:
    """Receives the files of one channel, in the order of the requests."""

    def __init__(
        self, landings: Sequence[Landing], ended: Ended, moved: Callable[[int], None]
    ) -> None:
        self._landings = landings
        self._ended = ended
        self._moved = moved
        self._room = threading.Semaphore(_UNFINISHED)
        self._buffer = memoryview(bytearray(_CHUNK))

    def run(self, pipe: int) -> None:
        """Read all files; raise `StreamCut` on an early end, `Unavailable` if the disk is full."""
        with (
            open(pipe, "rb", buffering=1 << 16) as stream,
            concurrent.futures.ThreadPoolExecutor(_FINISHERS, "landing") as pool,
        ):
            for landing in self._landings:
                self._one(landing, stream, pool)

    def _one(self, landing: Landing, stream: BinaryIO, pool: concurrent.futures.Executor) -> None:
        head = _head(stream)
        if "words" in head:
            self._ended(landing, _refusal(landing, head))
            return
        wanted = landing.wanted
        if head.get("size") != wanted.size or head.get("offset") != landing.offset:
            raise StreamCut("the site sent data that was not requested")
        try:
            landing.open()
        except OSError as error:
            self._ended(landing, of_writing(error))
            self._read(None, wanted.size - landing.offset, stream)
            return
        try:
            self._read(landing, wanted.size - landing.offset, stream)
        except OSError as error:
            landing.close()
            raise of_writing(error) from error
        except StreamCut:
            landing.close()
            raise
        self._room.acquire()
        pool.submit(self._finish, landing, bool(int(head.get("mode", 0)) & 0o100))

    def _read(self, landing: Landing | None, left: int, stream: BinaryIO) -> None:
        while left:
            view = self._buffer[: min(left, _CHUNK)]
            got = stream.readinto(view)  # type: ignore[attr-defined]
            if not got:
                raise StreamCut("")
            if landing is not None:
                landing.add(view[:got])
                self._moved(got)
            left -= got

    def _finish(self, landing: Landing, executable: bool) -> None:  # noqa: FBT001 - a bit of a mode
        try:
            landing.finish(executable=executable)
        except (errors.PilotageError, DigestMismatch) as error:
            self._ended(landing, error)
        except OSError as error:
            self._ended(landing, of_writing(error))
        else:
            self._ended(landing, None)
        finally:
            self._room.release()


def _head(stream: BinaryIO) -> dict[str, Any]:
    line = stream.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise StreamCut("")
    try:
        head = text.load(line)
    except ValueError as error:
        raise StreamCut("the site sent invalid data") from error
    if not isinstance(head, dict):
        raise StreamCut("the site sent invalid data")
    return head


def _refusal(landing: Landing, head: dict[str, Any]) -> Exception:
    words = text.show(str(head["words"]))
    match head.get("kind"):
        case "changed":
            return changed(landing.wanted)
        case "missing":
            return errors.NotFound(f"the site does not have it any more: {words}")
        case "denied":
            return errors.Denied(f"the site refuses: {words}")
        case _:
            return errors.Unavailable(f"the site cannot read it: {words}")
