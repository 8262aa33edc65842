"""A stream of files to the receiver at a site."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import fcntl
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self

import msgspec

from pilotage.base import errors, text
from pilotage.base.paths import DIGEST
from pilotage.data.stage.digest import Changed
from pilotage.data.stage.model import Key, StagingSite
from pilotage.data.stage.plan import SendRecord
from pilotage.data.transfer.version import Version

PIPE = 1 << 20
_MOVE = 4 << 20
_WORDS = 2000


class FileRefused(Exception):
    """The site did not keep a file."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind


class Outgoing(msgspec.Struct, frozen=True):
    """A record and the file that it is of."""

    record: SendRecord
    key: Key
    #: The sum that follows the bytes, if the record has none.
    late: concurrent.futures.Future[str] | None = None


class Channel:
    """Sends records one after another; the kernel moves their bytes."""

    def __init__(self, site: StagingSite, root: str, moved: Callable[[int], None]) -> None:
        self._site = site
        self._root = root
        self._moved = moved
        self._queue: queue.SimpleQueue[Outgoing | None] = queue.SimpleQueue()
        self._answers: dict[str, asyncio.Future[str]] = {}
        self._turn: asyncio.Future[None] | None = None
        #: What ended it on our side.
        self._failure: Exception | None = None
        self._good = True

    async def __aenter__(self) -> Self:
        """Start the receiver."""
        self._loop = asyncio.get_running_loop()
        theirs, ours = os.pipe()
        try:
            with contextlib.suppress(OSError):
                fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, PIPE)
            self._process = await self._site.bulk(
                ["receive", self._root], stdin=theirs, stdout=None
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._thread = threading.Thread(target=self._pump, args=(ours,), name="push", daemon=True)
        self._thread.start()
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        """Wait for the last answers; do not if something failed here."""
        self._queue.put(None)
        try:
            if kind is None:
                await asyncio.shield(self._listening)
        finally:
            # With the process its end of the pipe goes, and with that the thread.
            end(self._process)
            await to_the_end(gone(self._process, self._listening))

    async def send(self, out: Outgoing) -> asyncio.Future[str]:
        """Wait until the channel is free, and send; the future has the site's answer."""
        if self._turn is not None:
            await asyncio.wait([self._turn])
        answer: asyncio.Future[str] = self._loop.create_future()
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self._listening.done():
            answer.set_exception(self._loss(""))
            return answer
        self._answers[out.record.name] = answer
        self._turn = self._loop.create_future()
        self._queue.put(out)
        return answer

    @property
    def good(self) -> bool:
        """Whether it is open, and the site kept all that was sent."""
        return self._good and self._failure is None and not self._listening.done()

    async def answered(self) -> None:
        """Wait until the site has answered for all that was sent."""
        if self._answers:
            await asyncio.wait(self._answers.values())

    async def turn(self) -> None:
        """Wait until all bytes are on their way."""
        if self._turn is not None:
            await asyncio.wait([self._turn])

    async def _listen(self) -> None:
        """Pass answers on until there are no more."""
        said = asyncio.create_task(words(self._process))
        assert self._process.stdout is not None  # noqa: S101 - asked for above
        try:
            async for line in self._process.stdout:
                self._answer(text.load(line))
        except ValueError as error:
            self._fail(errors.Unavailable(f"the site sent an invalid answer: {error}"))
        await self._process.wait()
        self._fail(self._loss(await said))

    def _answer(self, told: dict[str, Any]) -> None:
        answer = self._answers.pop(str(told.get("name")), None)
        if answer is None or answer.done():
            return
        digest = str(told.get("digest"))
        if told.get("ok") and DIGEST.fullmatch(digest):
            answer.set_result(digest)
        else:
            self._good = False
            answer.set_exception(FileRefused(str(told.get("kind")), str(told.get("words"))))

    def _fail(self, error: Exception) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)
        self._answers.clear()
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def _loss(self, said: str) -> Exception:
        return self._failure or lost(said)

    def _pump(self, pipe: int) -> None:
        """Write records into the pipe, in a thread of its own."""
        try:
            while (out := self._queue.get()) is not None:
                self._put(pipe, out)
                self._tell(self._next)
        except BrokenPipeError:
            return
        except (Changed, concurrent.futures.CancelledError):
            # Some of it may be in the stream: nothing after it would be understood.
            self._failure = Changed()
        except OSError as error:
            self._failure = errors.Unavailable(f"cannot read a file here: {error.strerror}")
        finally:
            os.close(pipe)

    def _put(self, pipe: int, out: Outgoing) -> None:
        try:
            file = os.open(out.key.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Changed from error
        try:
            if Version.of(os.fstat(file)) != out.key.version:
                raise Changed
            write(pipe, msgspec.json.encode(out.record) + b"\n")
            for at, length in out.record.spans:
                self._move(pipe, file, at, length)
        finally:
            os.close(file)
        if out.late is not None:
            write(pipe, msgspec.json.encode({"digest": out.late.result()}) + b"\n")

    def _move(self, pipe: int, file: int, at: int, length: int) -> None:
        told = 0
        while length:
            try:
                sent = os.sendfile(pipe, file, at, min(length, _MOVE))
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOSYS):
                    raise
                data = os.pread(file, min(length, PIPE), at)
                write(pipe, data)
                sent = len(data)
            if not sent:
                raise Changed
            at, length, told = at + sent, length - sent, told + sent
            if told >= _MOVE or not length:
                count, told = told, 0
                self._tell(lambda count=count: self._moved(count))  # type: ignore[misc]

    def _tell(self, act: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(act)

    def _next(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)


def write(pipe: int, data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(pipe, data) :]


def end(process: asyncio.subprocess.Process) -> None:
    """End a process if it has not ended."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def gone(process: asyncio.subprocess.Process, *tasks: asyncio.Future[Any]) -> None:
    """Wait until a process and its readers have ended."""
    await asyncio.wait(tasks)
    await process.wait()
    # Its pipes are closed in the next round of the loop, which may be its last.
    await asyncio.sleep(0)


async def to_the_end(act: Coroutine[Any, Any, None]) -> None:
    """Finish something short, also if we are cancelled meanwhile."""
    task = asyncio.create_task(act)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def words(process: asyncio.subprocess.Process) -> str:
    """Read the error output of a process, up to a limit."""
    said = b""
    while process.stderr is not None and (data := await process.stderr.read(1 << 16)):
        said = (said + data)[-_WORDS:]
    return text.show(said.decode("utf-8", "replace").strip().rpartition("\n")[2])


def lost(said: str) -> errors.Unavailable:
    """Return the error for a channel that ended early."""
    message = "the connection to the site was lost while data was on its way"
    return errors.Unavailable(f"{message}: {said}" if said else message)
