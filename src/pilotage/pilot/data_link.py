"""A connection by which a pilot fetches inputs and returns outputs of its attempts.

Requests and answers are frames, as on the link. The bytes of files follow an answer as they are;
none of them stays in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from typing import Any

import anyio.to_thread
import msgspec

from pilotage.base import errors
from pilotage.base.supervise import Background
from pilotage.data.stage.landing import DigestMismatch, Landing
from pilotage.pilot import messages
from pilotage.pilot.data import Staging
from pilotage.pilot.table import OVER, Pilot

_log = logging.getLogger("pilotage.link")
_BULK = 1 << 18
#: Seconds after which a connection on which nothing is asked or moves is closed.
_IDLE_S = 120.0
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class ConnectionCut(Exception):
    """The connection cannot be used any more."""


def streams(transport: asyncio.Transport) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Go on with a connection as streams."""
    reader = asyncio.StreamReader(limit=_BULK)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    return reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())


class DataLinks:
    """All such connections; only some of them carry bytes at once."""

    def __init__(self, staging: Staging, most: int = 64) -> None:
        self.staging = staging
        self.turn = asyncio.Semaphore(most)
        self._beside = Background(_log, "data of pilots")

    def take_over(self, transport: asyncio.Transport, pilot: Pilot) -> None:
        """Serve data on a connection of an authenticated pilot."""
        self._beside.start(DataLink(self, pilot, *streams(transport)).serve())


class DataLink:
    """One connection of one pilot."""

    def __init__(
        self, links: DataLinks, pilot: Pilot, reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        self._links = links
        self._staging = links.staging
        self._pilot = pilot
        self._reader = reader
        self._writer = writer

    async def serve(self) -> None:
        """Answer until the pilot has gone."""
        try:
            while True:
                async with asyncio.timeout(_IDLE_S):
                    length = int.from_bytes(await self._reader.readexactly(4), "big")
                    if length > messages.MOST_FRAME_BYTES:
                        raise ConnectionCut
                    body = await self._reader.readexactly(length)
                async with self._links.turn:
                    await self._answer(messages.read_data(body))
        except (
            ConnectionCut,
            OSError,
            TimeoutError,
            asyncio.IncompleteReadError,
            errors.UsageError,
        ):
            # The pilot asks again by another connection.
            return
        finally:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    async def _answer(self, message: messages.Fetch | messages.BringHome) -> None:
        try:
            if self._pilot.state in OVER:
                raise errors.Denied(f"pilot {self._pilot.number} is {self._pilot.state}")
            if isinstance(message, messages.Fetch):
                await self._fetch(message)
            else:
                await self._home(message)
        except (ConnectionCut, asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            raise
        except Exception as error:
            self._writer.write(messages.refusal(message.n, message.p, _told(error)))
            await self._writer.drain()
            # Bytes that are not wanted may be on their way.
            raise ConnectionCut from error

    def _say(self, to: messages.Message, **facts: Any) -> None:  # noqa: ANN401 - JSON
        self._writer.write(messages.answer(to, facts))

    async def _fetch(self, message: messages.Fetch) -> None:
        file, size = await self._staging.open(self._pilot, message.key, message.sha256)
        try:
            self._say(message, size=size)
            at = max(0, message.at)
            while at < size:
                data = await anyio.to_thread.run_sync(os.pread, file, _BULK, at)
                if not data or not self._pilot.holds(message.key):
                    raise ConnectionCut
                self._writer.write(data[: size - at])
                async with asyncio.timeout(_IDLE_S):
                    await self._writer.drain()
                at += len(data)
        finally:
            os.close(file)

    async def _home(self, message: messages.BringHome) -> None:
        arrival = await self._staging.expect(self._pilot, message.key, message.outputs)
        wanted = [(one.wanted.remote, one.offset, one.wanted.size) for one in arrival.files]
        self._say(message, files=wanted)
        for file in arrival.files:
            await self._receive(message, file)
        await self._staging.land(self._pilot, message.key, arrival)
        self._say(message, ok=True)

    async def _receive(self, message: messages.BringHome, file: Landing) -> None:
        await anyio.to_thread.run_sync(file.open)
        with contextlib.ExitStack() as undo:
            undo.callback(file.close)
            left = file.wanted.size - file.offset
            while left:
                async with asyncio.timeout(_IDLE_S):
                    data = await self._reader.read(min(left, _BULK))
                # A pilot that lost the attempt meanwhile must not write where the next one writes.
                if not data or not self._pilot.holds(message.key):
                    raise ConnectionCut
                await anyio.to_thread.run_sync(file.add, memoryview(data))
                left -= len(data)
            undo.pop_all()
        executable = file.wanted.remote in message.executable
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(lambda: file.check(executable=executable))


def _told(error: Exception) -> errors.PilotageError:
    """Return what went wrong so that a pilot can judge whether it helps to try again."""
    if isinstance(error, errors.PilotageError):
        return error
    if isinstance(error, DigestMismatch):
        return errors.Unavailable("the part received before was corrupt: send all of it again")
    if isinstance(error, OSError):
        words = f"the hub cannot keep it: {error.strerror or error}"
        return errors.Unavailable(words) if error.errno in _FULL else errors.Conflict(words)
    if isinstance(error, (msgspec.ValidationError, LookupError, TypeError, ValueError)):
        return errors.Denied(f"these cannot be outputs of a job: {error}")
    _log.error("handling data of a pilot failed", exc_info=error)
    return errors.PilotageError("an internal error of the hub", hint="its log says more")
