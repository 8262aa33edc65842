"""The server of all exports: one port of this machine, open only while there is an export.

A client names its export by the first bytes of a connection, which is then given to an `sshd` in
the sandbox of that export. No data goes through this process; it counts what the kernel says of
each connection, and ends an export whose client exceeds its limits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import struct
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import anyio
import anyio.abc
import anyio.to_thread

from pilotage.base import errors

from .folder import Layout
from .model import USER, Access, ExportLimits
from .sandbox import ExportKeys, ExportSandbox, Programs

_log = logging.getLogger("pilotage.batch")
#: Connections that have not named an export yet, and how long each may take.
_STRANGERS = 64
_TOKEN_SECONDS = 10.0
_TOKEN_BYTES = 32
_WATCH_SECONDS = 1.0
#: The shortest request that makes a file or a folder, in bytes.
_ENTRY_BYTES = 18
#: `tcpi_bytes_received` of the kernel's `tcp_info`.
_RECEIVED_AT = 128
_PLAIN = ExportLimits()


@dataclass(eq=False)
class Export:
    """A folder that is served, and its use so far."""

    name: str
    layout: Layout
    bounds: ExportLimits
    sandbox: ExportSandbox
    connections: set[socket.socket] = field(default_factory=set)
    #: Bytes received by connections that have ended.
    ended: int = 0
    #: Entries in the folder when they were counted last, and bytes received until then.
    entries: int = 0
    counted: int = 0

    @property
    def received(self) -> int:
        """Bytes that clients have sent in all."""
        return self.ended + sum(map(received, self.connections))

    async def excess(self) -> str:
        """Return a description of the limit that is exceeded; empty if none is."""
        now, bounds = self.received, self.bounds
        if now > bounds.size:
            return f"it sent more than {bounds.size} bytes"
        # It cannot have made more since the last time.
        if self.entries + (now - self.counted) // _ENTRY_BYTES > bounds.entries:
            folder = str(self.layout.folder)
            self.entries = await anyio.to_thread.run_sync(count, folder, bounds.entries)
            self.counted = now
        if self.entries > bounds.entries:
            return f"it made more than {bounds.entries} files, or hid some"
        return ""


class Exports:
    """Serves folders of this machine, each by SFTP to the holder of its own key."""

    def __init__(self) -> None:
        self._names: dict[str, Export] = {}
        self._tokens: dict[bytes, Export] = {}
        self._strangers = 0
        self._tasks = anyio.create_task_group()
        self._listener: socket.socket | None = None
        self._accepting: anyio.CancelScope | None = None

    async def __aenter__(self) -> Self:
        """Begin with no export and no port."""
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._watch)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close every export, and the port with them."""
        with anyio.CancelScope(shield=True):
            for name in list(self._names):
                await self.close(name)
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def open(self, name: str, layout: Layout, *, bounds: ExportLimits = _PLAIN) -> Access:
        """Serve a folder until the export of this name is closed."""
        programs = Programs.find()
        keys = await anyio.to_thread.run_sync(ExportKeys.make, programs.keygen)
        sandbox = ExportSandbox(programs, bounds)
        await sandbox.start(layout, keys)
        try:
            if name in self._names:
                raise errors.Conflict(f"there is an export {name} already")
            port = self._listen()
        except (errors.Conflict, OSError) as error:
            with anyio.CancelScope(shield=True):
                await sandbox.stop()
            if isinstance(error, OSError):
                raise errors.Unavailable(f"no port for the data of jobs: {error}") from error
            raise
        token = secrets.token_hex(_TOKEN_BYTES // 2)
        self._names[name] = self._tokens[token.encode()] = Export(name, layout, bounds, sandbox)
        return Access(
            port=port, user=USER, token=token, private_key=keys.client, host_key=keys.known
        )

    async def close(self, name: str) -> None:
        """End every connection to an export; its key and token open nothing from now on."""
        export = self._names.pop(name, None)
        if export is None:
            return
        self._tokens = {token: one for token, one in self._tokens.items() if one is not export}
        if not self._names and self._accepting is not None:
            self._accepting.cancel()
            self._listener = self._accepting = None
        with anyio.CancelScope(shield=True):
            await export.sandbox.stop()

    # -- connections -----------------------------------------------------------------------------

    def _listen(self) -> int:
        """Open the port if it is not open; return its number."""
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
            self._listener.setblocking(False)
            self._accepting = anyio.CancelScope()
            self._tasks.start_soon(self._accept, self._listener, self._accepting)
        return int(self._listener.getsockname()[1])

    async def _accept(self, listener: socket.socket, scope: anyio.CancelScope) -> None:
        loop = asyncio.get_running_loop()
        with listener, scope:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError as error:
                    _log.warning("cannot accept a connection to mounted data: %s", error)
                    await anyio.sleep(_WATCH_SECONDS)
                    continue
                if self._strangers >= _STRANGERS:
                    connection.close()
                    continue
                self._strangers += 1
                self._tasks.start_soon(self._admit, connection)

    async def _admit(self, connection: socket.socket) -> None:
        """Have a connection served by the export that it names."""
        with connection:
            try:
                export = await self._named(connection)
            finally:
                self._strangers -= 1
            if export is None or len(export.connections) >= export.bounds.connections:
                return
            export.connections.add(connection)
            try:
                await self._serve(export, connection)
            finally:
                export.connections.discard(connection)
                export.ended += received(connection)

    async def _named(self, connection: socket.socket) -> Export | None:
        """Read the token, and not a byte of what follows it."""
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        token = b""
        try:
            with anyio.fail_after(_TOKEN_SECONDS):
                while missing := _TOKEN_BYTES - len(token):
                    token += (more := await loop.sock_recv(connection, missing))
                    if not more:
                        return None
                export = self._tokens.get(token)
                if export is None:
                    await loop.sock_sendall(connection, b"unknown export\n")
        except (OSError, TimeoutError):
            return None
        connection.setblocking(True)
        return export

    async def _serve(self, export: Export, connection: socket.socket) -> None:
        try:
            process = await export.sandbox.serve(connection)
        except OSError as error:
            _log.warning("cannot serve the data of %s: %s", export.name, error)
            return
        try:
            await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await process.aclose()

    # -- limits ----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """End exports whose clients exceed their limits."""
        while True:
            await anyio.sleep(_WATCH_SECONDS)
            for export in list(self._names.values()):
                if why := await export.excess():
                    _log.warning("the data of %s is not served any more: %s", export.name, why)
                    await self.close(export.name)


def received(connection: socket.socket) -> int:
    """Return how many bytes have come by a connection, as the kernel counts them."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED_AT + 8)
    return int(struct.unpack_from("=Q", info, _RECEIVED_AT)[0])


def count(folder: str, most: int) -> int:
    """Count everything below a folder, up to one more than `most`; hidden entries are too many."""
    entries, left = 0, [folder]
    while left and entries <= most:
        try:
            with os.scandir(left.pop()) as found:
                for one in found:
                    entries += 1
                    if one.is_dir(follow_symlinks=False):
                        left.append(one.path)
        except FileNotFoundError:
            continue
        except OSError:
            # It must not be read, or its path is too long.
            return most + 1
    return entries
