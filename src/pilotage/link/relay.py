"""The relay of a site: carries bytes between pilots without a network and one hub.

    pilots ──TCP of the cluster──▶ relay ──direct, or through a proxy──▶ hub
    pilots ──files of a folder──▶

Encryption is between pilot and hub; the relay learns nothing, and reaches nothing but that hub.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import socket
import time
from collections.abc import Iterator

import msgspec

from pilotage.base import errors
from pilotage.base.supervise import Background
from pilotage.link.connect import Stream, close, reach
from pilotage.node import spool
from pilotage.node.dial import Route

_log = logging.getLogger("pilotage.relay")
_BULK = 1 << 16
#: How long the second direction of a connection may go on when the first has ended.
_LINGER_S = 5.0
#: How often the shared folder is looked at for new streams, and rid of old ones.
_GLANCE_S = 0.25
_SWEEP_S = 600.0
#: Streams that are older than this were left by a pilot that died.
_OLD_S = 3600.0
_REPORT_S = 10.0
_LOCK = "relay.lock"


class RelayBounds(msgspec.Struct, frozen=True):
    """Limits of a relay."""

    #: Connections at once.
    connections: int = 4096
    #: Seconds without a byte in either direction after which a connection is ended; pilots are
    #: heard of far more often.
    idle: float = 600.0


class RelayTally(msgspec.Struct):
    """Counts of a relay."""

    open: int = 0
    served: int = 0
    refused: int = 0
    #: Bytes to the hub, and from it.
    up: int = 0
    down: int = 0


class Relay:
    """Carries bytes to one hub and back."""

    def __init__(self, way: Route, bounds: RelayBounds = RelayBounds()) -> None:  # noqa: B008 - frozen
        """Take the route to the hub; nothing is connected before the first stream."""
        self._way = way
        self._bounds = bounds
        self.tally = RelayTally()
        self._beside = Background(_log, "a connection")
        #: Why the hub could not be reached the last time; empty if it could.
        self._trouble = ""

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Take connections of pilots at an address."""
        try:
            return await asyncio.start_server(self._accept, host, port, backlog=1024)
        except OSError as error:
            message = f"cannot listen on {host}:{port}: {error.strerror or error}"
            raise errors.ConfigError(
                message, hint="`--listen` is HOST:PORT of this machine"
            ) from None

    async def watch(self, folder: str) -> None:
        """Take streams of pilots in a shared folder until cancelled."""
        with _alone(folder):
            if left := await asyncio.to_thread(spool.close_abandoned, folder):
                _log.info("ended %d streams of an earlier relay", left)
            swept = 0.0
            while True:
                if time.monotonic() - swept > _SWEEP_S:
                    await asyncio.to_thread(_sweep, folder, time.time() - _OLD_S)
                    swept = time.monotonic()
                for stream in await asyncio.to_thread(spool.waiting, folder):
                    await self._take(stream)
                await asyncio.sleep(_GLANCE_S)

    async def report(self) -> None:
        """Log the tally whenever it has changed, until cancelled."""
        told = (0, 0, 0)
        while True:
            await asyncio.sleep(_REPORT_S)
            tally = self.tally
            if (tally.open, tally.served, tally.refused) != told:
                told = (tally.open, tally.served, tally.refused)
                _log.info(
                    "%d connections now, %d in all, %d refused; %.1f MB to the hub, %.1f MB back",
                    *told, tally.up / 1e6, tally.down / 1e6,
                )  # fmt: skip

    async def end(self) -> None:
        """End all connections."""
        await self._beside.end()

    # -- one connection --------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link: socket.socket = writer.get_extra_info("socket")
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._begin((reader, writer))

    async def _take(self, stream: spool.SpoolStream) -> None:
        """See a stream of files as a connection; a thread of its own moves the files."""
        ours, theirs = socket.socketpair()
        spool.Pump(stream, theirs).start()
        self._begin(await asyncio.open_connection(sock=ours))

    def _begin(self, pilot: Stream) -> None:
        if len(self._beside) >= self._bounds.connections:
            self.tally.refused += 1
            pilot[1].close()
            return
        self._beside.start(self._carry(pilot))

    async def _carry(self, pilot: Stream) -> None:
        """Carry bytes between a pilot and the hub until both are done, or one has vanished."""
        try:
            hub = await self._reach()
            if hub is None:
                return
            self.tally.open += 1
            self.tally.served += 1
            try:
                await self._splice(pilot, hub)
            finally:
                self.tally.open -= 1
                await close(hub[1])
        finally:
            await close(pilot[1])

    async def _reach(self) -> Stream | None:
        try:
            hub = await reach(self._way)
        except errors.Unavailable as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                _log.warning("%s; pilots try again by themselves", error)
            return None
        if self._trouble:
            self._trouble = ""
            _log.info("the hub can be reached again")
        return hub

    async def _splice(self, pilot: Stream, hub: Stream) -> None:
        heard = [time.monotonic()]
        ways = {
            asyncio.create_task(self._move(pilot[0], hub[1], heard, "up")),
            asyncio.create_task(self._move(hub[0], pilot[1], heard, "down")),
        }
        left = ways
        try:
            while left == ways:
                quiet = time.monotonic() - heard[0]
                if quiet >= self._bounds.idle:
                    return
                _, left = await asyncio.wait(
                    ways, timeout=self._bounds.idle - quiet, return_when=asyncio.FIRST_COMPLETED
                )
            if left:
                await asyncio.wait(left, timeout=_LINGER_S)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _move(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: list[float],
        direction: str,
    ) -> None:  # fmt: skip
        """Carry bytes one way, no faster than they are taken, and then the end of them."""
        with contextlib.suppress(OSError):
            while data := await reader.read(_BULK):
                heard[0] = time.monotonic()
                writer.write(data)
                await writer.drain()
                setattr(self.tally, direction, getattr(self.tally, direction) + len(data))
            writer.write_eof()


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Lock a folder for this relay; refuse one that everybody may write to."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.stat(folder).st_mode & 0o002:
            message = f"all users may write to {folder}"
            raise errors.ConfigError(message, hint=f"`chmod o-w {folder}`")
        lock = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"cannot use {folder}: {error.strerror}"
        raise errors.ConfigError(message, hint="`--spool` is a folder that pilots share") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        message = f"another relay serves {folder} already"
        raise errors.AlreadyRunning(message, hint="stop that one first") from None
    finally:
        os.close(lock)


def _sweep(folder: str, before: float) -> None:
    """Remove streams that were ended long ago by a side that has not seen the other's end."""
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            if os.stat(os.path.join(entry.path, "closed")).st_mtime < before:
                shutil.rmtree(entry.path, ignore_errors=True)
