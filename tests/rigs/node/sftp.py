"""A client of SFTP version 3 that sends whatever a test wants, through the program `ssh`."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

from pilotage.data.export import Access
from pilotage.node.batchjob import mount

READ, WRITE, APPEND, CREATE, TRUNCATE, EXCLUSIVE = (1 << bit for bit in range(6))
NEW = WRITE | CREATE | TRUNCATE
_STATUS, _HANDLE, _DATA, _NAME, _ATTRS = 101, 102, 103, 104, 105
_SIZE, _OWNER, _MODE, _TIMES = 1, 2, 4, 8


class RefusedError(Exception):
    """The server answered a request with a status that is no success."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(code, words)
        self.code = code


class LostError(Exception):
    """The connection ended; the text is what `ssh` wrote."""


def text(value: str | bytes) -> bytes:
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack(">I", len(data)) + data


def attrs(
    *,
    size: int | None = None,
    owner: tuple[int, int] | None = None,
    mode: int | None = None,
    times: tuple[int, int] | None = None,
) -> bytes:
    flags, data = 0, b""
    if size is not None:
        flags, data = flags | _SIZE, data + struct.pack(">Q", size)
    if owner is not None:
        flags, data = flags | _OWNER, data + struct.pack(">II", *owner)
    if mode is not None:
        flags, data = flags | _MODE, data + struct.pack(">I", mode)
    if times is not None:
        flags, data = flags | _TIMES, data + struct.pack(">II", *times)
    return struct.pack(">I", flags) + data


class Sftp:
    """A session; each method is one request."""

    def __init__(self, process: anyio.abc.Process, said: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._to = process.stdin
        self._from = BufferedByteReceiveStream(process.stdout)
        self._said = said
        self._number = 0

    async def begin(self) -> None:
        await self._send(struct.pack(">BI", 1, 3))
        await self._receive()

    async def _send(self, packet: bytes) -> None:
        try:
            await self._to.send(struct.pack(">I", len(packet)) + packet)
        except anyio.BrokenResourceError as error:
            raise LostError(self._said.read_text()) from error

    async def _receive(self) -> bytes:
        try:
            (size,) = struct.unpack(">I", await self._from.receive_exactly(4))
            return await self._from.receive_exactly(size)
        except anyio.IncompleteRead as error:
            raise LostError(self._said.read_text()) from error

    async def ask(self, kind: int, *fields: bytes) -> bytes:
        """Send a request; return its answer, without the head."""
        self._number += 1
        await self._send(struct.pack(">BI", kind, self._number) + b"".join(fields))
        answer = await self._receive()
        kind, number = struct.unpack_from(">BI", answer)
        assert number == self._number
        if kind == _STATUS:
            (code,) = struct.unpack_from(">I", answer, 5)
            if code:
                raise RefusedError(code, answer[13:].decode("utf-8", "replace"))
        return answer[5:]

    async def extended(self, name: str, *fields: bytes) -> bytes:
        return await self.ask(200, text(name), *fields)

    async def open(self, path: str, flags: int = READ, mode: int | None = None) -> bytes:
        return await self.ask(3, text(path), struct.pack(">I", flags), attrs(mode=mode))

    async def close(self, handle: bytes) -> None:
        await self.ask(4, handle)

    async def read(self, handle: bytes, size: int = 1 << 15, offset: int = 0) -> bytes:
        return (await self.ask(5, handle, struct.pack(">QI", offset, size)))[4:]

    async def write(self, handle: bytes, data: bytes, offset: int = 0) -> None:
        for start in range(0, len(data), 1 << 15):
            piece = text(data[start : start + (1 << 15)])
            await self.ask(6, handle, struct.pack(">Q", offset + start), piece)

    async def put(self, path: str, data: bytes, offset: int = 0) -> None:
        handle = await self.open(path, NEW)
        await self.write(handle, data, offset)
        await self.close(handle)

    async def get(self, path: str) -> bytes:
        handle = await self.open(path)
        data = await self.read(handle)
        await self.close(handle)
        return data

    async def lstat(self, path: str) -> bytes:
        return await self.ask(7, text(path))

    async def stat(self, path: str) -> bytes:
        return await self.ask(17, text(path))

    async def setstat(self, path: str, change: bytes) -> None:
        await self.ask(9, text(path), change)

    async def fsetstat(self, handle: bytes, change: bytes) -> None:
        await self.ask(10, handle, change)

    async def lsetstat(self, path: str, change: bytes) -> None:
        await self.extended("lsetstat@openssh.com", text(path), change)

    async def listing(self, path: str) -> set[str]:
        handle = await self.ask(11, text(path))
        names: set[str] = set()
        try:
            while True:
                names |= _names(await self.ask(12, handle))
        except RefusedError as error:
            if error.code != 1:
                raise
        await self.close(handle)
        return names

    async def remove(self, path: str) -> None:
        await self.ask(13, text(path))

    async def mkdir(self, path: str, mode: int | None = None) -> None:
        await self.ask(14, text(path), attrs(mode=mode))

    async def rmdir(self, path: str) -> None:
        await self.ask(15, text(path))

    async def realpath(self, path: str) -> str:
        [name] = _names(await self.ask(16, text(path)))
        return name

    async def rename(self, old: str, new: str) -> None:
        await self.ask(18, text(old), text(new))

    async def replace(self, old: str, new: str) -> None:
        await self.extended("posix-rename@openssh.com", text(old), text(new))

    async def link(self, old: str, new: str) -> None:
        await self.extended("hardlink@openssh.com", text(old), text(new))

    async def readlink(self, path: str) -> str:
        [name] = _names(await self.ask(19, text(path)))
        return name

    async def symlink(self, to: str, path: str) -> None:
        await self.ask(20, text(to), text(path))


def _names(answer: bytes) -> set[str]:
    """Read the names of an answer, past the long lines and the attributes."""
    (count,) = struct.unpack_from(">I", answer)
    names, at = set(), 4
    for _ in range(count):
        name, at = _read(answer, at)
        _, at = _read(answer, at)
        (flags,) = struct.unpack_from(">I", answer, at)
        at += 4 + 8 * bool(flags & _SIZE) + 8 * bool(flags & _OWNER)
        at += 4 * bool(flags & _MODE) + 8 * bool(flags & _TIMES)
        names.add(name.decode())
    return names


def _read(data: bytes, at: int) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(">I", data, at)
    return data[at + 4 : at + 4 + size], at + 4 + size


def order(access: Access, **change: object) -> dict[str, object]:
    """Return what a job is told of an export."""
    made: dict[str, object] = {"host": "127.0.0.1", "port": access.port, "user": access.user}
    made |= {"token": access.token, "key": access.private_key, "known_hosts": access.host_key}
    return made | {"options": []} | change


@asynccontextmanager
async def ssh(
    access: Access, *argv: str, **change: object
) -> AsyncIterator[tuple[anyio.abc.Process, Path]]:
    """Start `ssh` with the key of an export; yield it with the file that it writes errors to."""
    with tempfile.TemporaryDirectory(prefix="pilotage-sftp-") as folder:
        made = order(access, **change)
        mount.sshfs_source(made, folder)
        said = Path(folder, "said")
        user = f"{made['user']}@127.0.0.1"
        words = ["ssh", "-F", f"{folder}/config", "-p", str(access.port), *argv[:-1], user]
        async with await anyio.open_file(said, "wb") as file:
            process = await anyio.open_process([*words, *argv[-1:]], stderr=file.wrapped.fileno())
        try:
            yield process, said
        finally:
            if process.returncode is None:
                process.kill()
            with anyio.CancelScope(shield=True):
                await process.aclose()


@asynccontextmanager
async def client(access: Access, **change: object) -> AsyncIterator[Sftp]:
    """Open a session of SFTP."""
    async with ssh(access, "-s", "sftp", **change) as (process, said):
        made = Sftp(process, said)
        await made.begin()
        yield made


async def run(access: Access, *argv: str) -> tuple[int, bytes, str]:
    """Run `ssh` to its end; return its status, what it printed and what it complained of."""
    async with ssh(access, *argv) as (process, said):
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdin.aclose()
        with anyio.fail_after(30):
            out = b"".join([chunk async for chunk in process.stdout])
            return await process.wait(), out, said.read_text()
