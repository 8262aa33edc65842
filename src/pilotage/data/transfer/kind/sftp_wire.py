"""The SFTP protocol, version 3, over the pipes of a process: requests go out without waiting."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Sequence

import msgspec

from pilotage.base import errors, text

#: What every server takes in one message.
BLOCK = 32_768
_LONGEST = 1 << 20

_INIT, _VERSION, _OPEN, _CLOSE, _READ, _WRITE, _LSTAT, _FSTAT = 1, 2, 3, 4, 5, 6, 7, 8
_FSETSTAT, _OPENDIR, _READDIR, _MKDIR, _REALPATH, _STAT = 10, 11, 12, 14, 16, 17
_RENAME, _REMOVE, _RMDIR = 18, 13, 15
_STATUS, _HANDLE, _DATA, _NAME, _ATTRS, _EXTENDED = 101, 102, 103, 104, 105, 200
_OK, _EOF, _NO_FILE, _DENIED = 0, 1, 2, 3

READ, WRITE, CREATE, TRUNCATE, EXCLUSIVE = 1, 2, 8, 16, 32

_SIZE, _OWNER, _MODE, _TIMES, _MORE = 1, 2, 4, 8, 0x80000000


class FileAttributes(msgspec.Struct, frozen=True):
    """The attributes of a file at a server."""

    size: int = -1
    mode: int = 0
    mtime: int = 0


class ConnectionEnded(Exception):
    """The connection has ended."""


class SftpConnection:
    """One connection; any number of requests may be under way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._next = 0
        self._waiting: dict[int, asyncio.Future[tuple[int, bytes]]] = {}
        self._extensions: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Greet the server."""
        self._send(_INIT, struct.pack(">I", 3))
        kind, body = await self._message()
        if kind != _VERSION:
            raise ConnectionEnded("the server does not use SFTP")
        at = 4
        while at < len(body):
            name, at = _string(body, at)
            _, at = _string(body, at)
            self._extensions.add(name.decode("ascii", "replace"))
        self._task = asyncio.create_task(self._listen())

    async def end(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._writer.close()

    @property
    def good(self) -> bool:
        """Whether the connection is there."""
        return self._task is not None and not self._task.done()

    # -- what can be asked -----------------------------------------------------------------------

    async def facts(self, path: str, *, follow: bool = False) -> FileAttributes:
        """Ask what is at a path."""
        return _facts(await self._ask(_STAT if follow else _LSTAT, _pack(path), path, _ATTRS), 0)[0]

    async def facts_of(self, handle: bytes) -> FileAttributes:
        """Ask about an open file."""
        return _facts(await self._ask(_FSTAT, _bytes(handle), "a file", _ATTRS), 0)[0]

    async def real(self, path: str) -> str:
        """Ask for a path without links."""
        body = await self._ask(_REALPATH, _pack(path), path, _NAME)
        return _text(_string(body, 4)[0])

    async def list(self, path: str) -> Sequence[tuple[str, FileAttributes]]:
        """List a folder."""
        handle = await self._handle(_OPENDIR, _pack(path), path)
        found: list[tuple[str, FileAttributes]] = []
        try:
            while (body := await self._more(_READDIR, _bytes(handle), path)) is not None:
                (count,), at = struct.unpack_from(">I", body), 4
                for _ in range(count):
                    name, at = _string(body, at)
                    _, at = _string(body, at)
                    facts, at = _facts(body, at)
                    found.append((_text(name), facts))
        finally:
            await self.close(handle)
        return found

    async def open(self, path: str, flags: int) -> bytes:
        """Open a file."""
        return await self._handle(_OPEN, _pack(path) + struct.pack(">II", flags, 0), path)

    async def close(self, handle: bytes) -> None:
        """Close a file or folder."""
        await self._ask(_CLOSE, _bytes(handle), "a file", _STATUS)

    async def read(self, handle: bytes, at: int, length: int) -> bytes:
        """Read some bytes; fewer may come, and none at the end."""
        ask = _bytes(handle) + struct.pack(">QI", at, length)
        body = await self._more(_READ, ask, "a file", _DATA)
        return b"" if body is None else _string(body, 0)[0]

    async def write(self, handle: bytes, at: int, data: bytes) -> None:
        """Write some bytes."""
        ask = _bytes(handle) + struct.pack(">Q", at) + _bytes(data)
        await self._ask(_WRITE, ask, "a file", _STATUS)

    async def make_folder(self, path: str) -> None:
        """Make a folder."""
        await self._ask(_MKDIR, _pack(path) + struct.pack(">I", 0), path, _STATUS)

    async def finish(self, handle: bytes, *, mode: int, mtime: int) -> None:
        """Set mode and time, and see that it is on disk if the server can."""
        facts = struct.pack(">IIII", _MODE | _TIMES, mode, mtime, mtime)
        await self._ask(_FSETSTAT, _bytes(handle) + facts, "a file", _STATUS)
        if "fsync@openssh.com" in self._extensions:
            await self._ask(
                _EXTENDED, _pack("fsync@openssh.com") + _bytes(handle), "a file", _STATUS
            )

    async def rename(self, old: str, new: str) -> None:
        """Rename a file, over another one if the server can."""
        if "posix-rename@openssh.com" in self._extensions:
            ask = _pack("posix-rename@openssh.com") + _pack(old) + _pack(new)
            await self._ask(_EXTENDED, ask, new, _STATUS)
        else:
            await self._ask(_RENAME, _pack(old) + _pack(new), new, _STATUS)

    async def remove(self, path: str) -> None:
        """Remove a file."""
        await self._ask(_REMOVE, _pack(path), path, _STATUS)

    async def remove_folder(self, path: str) -> None:
        """Remove a folder that is empty."""
        await self._ask(_RMDIR, _pack(path), path, _STATUS)

    # -- messages --------------------------------------------------------------------------------

    async def _handle(self, kind: int, ask: bytes, what: str) -> bytes:
        return _string(await self._ask(kind, ask, what, _HANDLE), 0)[0]

    async def _ask(self, kind: int, ask: bytes, what: str, expected: int) -> bytes:
        body = await self._more(kind, ask, what, expected)
        if body is None:
            raise errors.Unavailable(f"the server has no answer for {text.show(what)}")
        return body

    async def _more(self, kind: int, ask: bytes, what: str, expected: int = _NAME) -> bytes | None:
        if not self.good:
            raise ConnectionEnded
        self._next = (self._next + 1) & 0xFFFFFFFF
        answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._waiting[self._next] = answer
        self._send(kind, struct.pack(">I", self._next) + ask)
        await self._writer.drain()
        got, body = await answer
        if got == expected != _STATUS:
            return body
        if got != _STATUS:
            raise ConnectionEnded("the server sent an invalid answer")
        (code,) = struct.unpack_from(">I", body)
        if code == _OK and expected == _STATUS:
            return body
        if code == _EOF:
            return None
        raise _refusal(code, what, body)

    def _send(self, kind: int, body: bytes) -> None:
        self._writer.write(struct.pack(">IB", len(body) + 1, kind) + body)

    async def _message(self) -> tuple[int, bytes]:
        try:
            (length,) = struct.unpack(">I", await self._reader.readexactly(4))
            if not 1 <= length <= _LONGEST:
                # Whatever a login script prints arrives here as a length.
                raise ConnectionEnded("the server does not use SFTP")
            data = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise ConnectionEnded("the connection was lost") from error
        return data[0], data[1:]

    async def _listen(self) -> None:
        error: Exception = ConnectionEnded("the connection was lost")
        try:
            while True:
                kind, body = await self._message()
                (number,) = struct.unpack_from(">I", body)
                answer = self._waiting.pop(number, None)
                if answer is not None and not answer.done():
                    answer.set_result((kind, body[4:]))
        except (ConnectionEnded, struct.error) as found:
            error = found
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(error)
                    # The caller may have been cancelled.
                    answer.exception()
            self._waiting.clear()


def _refusal(code: int, what: str, body: bytes) -> errors.PilotageError:
    words = ""
    with contextlib.suppress(struct.error):
        words = text.show(_string(body, 4)[0].decode("utf-8", "replace"))
    shown = text.show(what)
    if code == _NO_FILE:
        return errors.NotFound(f"the server has no {shown}")
    if code == _DENIED:
        return errors.Denied(f"the server refuses {shown}: {words}")
    return errors.Unavailable(f"the server fails at {shown}: {words}")


def _bytes(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _pack(name: str) -> bytes:
    return _bytes(name.encode("utf-8", "surrogateescape"))


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _string(body: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">I", body, at)
    end = at + 4 + length
    if end > len(body):
        raise struct.error("a string is too long")
    return body[at + 4 : end], end


def _facts(body: bytes, at: int) -> tuple[FileAttributes, int]:
    (flags,) = struct.unpack_from(">I", body, at)
    at += 4
    size, mode, mtime = -1, 0, 0
    if flags & _SIZE:
        (size,) = struct.unpack_from(">Q", body, at)
        at += 8
    if flags & _OWNER:
        at += 8
    if flags & _MODE:
        (mode,) = struct.unpack_from(">I", body, at)
        at += 4
    if flags & _TIMES:
        _, mtime = struct.unpack_from(">II", body, at)
        at += 8
    if flags & _MORE:
        (count,) = struct.unpack_from(">I", body, at)
        at += 4
        for _ in range(2 * count):
            _, at = _string(body, at)
    return FileAttributes(size, mode, mtime * 1_000_000_000), at
