"""SFTP through OpenSSH's own client: it authenticates, we speak the protocol.

So keys, agents, certificates, jump hosts and connections that a person has opened with a one-time
code all count, and no name ever passes a command language.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import ClassVar

from pilotage.base import durable, errors, paths, text
from pilotage.data.transfer import allow, failures, program
from pilotage.data.transfer.allow import Allowed
from pilotage.data.transfer.keys import NONE, Credentials
from pilotage.data.transfer.kind import sftp_wire
from pilotage.data.transfer.kind.sftp_wire import (
    BLOCK,
    ConnectionEnded,
    FileAttributes,
    SftpConnection,
)
from pilotage.data.transfer.model import Flags, TransferItem, TransferListing, each
from pilotage.data.transfer.url import Url

#: Files that are under way at once; small ones would wait for the network otherwise.
_AT_ONCE = 16
#: Bytes of one file that are asked for at once.
_STRETCH = 64 * BLOCK
_DEEPEST = 64
_NEW = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_OPTIONS = (
    "BatchMode=yes", "ConnectTimeout=30", "ServerAliveInterval=15", "ServerAliveCountMax=4",
    "ClearAllForwardings=yes", "PermitLocalCommand=no", "ForwardAgent=no", "ForwardX11=no",
    "RequestTTY=no",
)  # fmt: skip


def command(url: Url, keys: Credentials = NONE) -> list[str]:
    """Build the call of `ssh` that leads to a host's SFTP."""
    argv = ["ssh", *(["-F", keys.ssh_config] if keys.ssh_config else [])]
    for option in _OPTIONS:
        argv += ["-o", option]
    argv += ["-p", str(url.port)] if url.port else []
    argv += ["-l", url.user] if url.user else []
    return [*argv, "-s", "--", url.host, "sftp"]


class Sftp:
    """Files of one host; the connection stays until it is closed."""

    flags: ClassVar[Flags] = Flags(atomic=True, times=True, steady=True)

    def __init__(self, allowed: Allowed, keys: Credentials = NONE) -> None:
        self._allowed = allowed
        self._keys = keys
        self._stack = contextlib.AsyncExitStack()
        self._said: asyncio.Task[str] | None = None
        self._wire: SftpConnection | None = None
        self._place: tuple[str, int, str] | None = None

    async def close(self) -> None:
        """End the connection."""
        self._wire = None
        await self._stack.aclose()

    async def look(self, url: Url) -> TransferListing:
        """Find out what is there."""
        async with self._trouble(url):
            wire = await self._connection(url)
            facts = await wire.facts(_path(url), follow=True)
            if stat.S_ISDIR(facts.mode):
                return TransferListing(url, folder=True, items=self._walk(url))
            above, name = url.above
            return TransferListing(above, folder=False, items=_one(_item(name, facts, url)))

    async def _walk(self, url: Url) -> AsyncGenerator[TransferItem, None]:
        async with self._trouble(url):
            wire = await self._connection(url)
            top = await wire.real(_path(url))
            waiting = [("", 0)]
            while waiting:
                below, depth = waiting.pop()
                if depth > _DEEPEST:
                    raise errors.Denied(f"{text.show(below)} is too deep a folder")
                for name, facts in await wire.list(_join(top, below)):
                    path = _join(below, name)
                    if name in (".", ".."):
                        continue
                    if stat.S_ISDIR(facts.mode):
                        waiting.append((path, depth + 1))
                    elif stat.S_ISLNK(facts.mode):
                        yield _item(path, await _linked(wire, top, path), url)
                    else:
                        yield _item(path, facts, url)

    async def fetch(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Read files, several at once."""
        async with self._trouble(base):
            wire = await self._connection(base)
            await each(
                items, lambda one: _fetch(wire, _path(base.join(one.name)), one, folder), _AT_ONCE
            )

    async def send(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Write files to temporary names, and rename them."""
        allow.check(self._allowed, base, write=True)
        async with self._trouble(base):
            wire = await self._connection(base)
            for name in sorted({os.path.dirname(item.name) for item in items}):
                await _make_folders(wire, _path(base.join(name) if name else base))
            await each(
                items, lambda one: _send(wire, _path(base.join(one.name)), one, folder), _AT_ONCE
            )

    async def clear(self, url: Url, aside: Url) -> None:
        """Remove a folder with all that is in it: it is out of sight at once."""
        async with self._trouble(url):
            wire = await self._connection(url)
            path, hidden = _path(url).rstrip("/"), _path(aside).rstrip("/")
            for _ in range(2):
                # What an earlier process has put aside and not removed goes first.
                await _clear(wire, hidden)
                with contextlib.suppress(errors.NotFound):
                    await wire.rename(path, hidden)

    async def _connection(self, url: Url) -> SftpConnection:
        place = (url.host, url.port, url.user)
        if self._wire is not None and self._wire.good and self._place == place:
            return self._wire
        await self._stack.aclose()
        allow.check(self._allowed, url)
        await allow.check_addresses(self._allowed, url)
        process = await self._stack.enter_async_context(
            program.running(command(url, self._keys), stdin=asyncio.subprocess.PIPE)
        )
        self._said = asyncio.create_task(program.words(process))
        assert process.stdout is not None  # noqa: S101 - asked for above
        assert process.stdin is not None  # noqa: S101 - asked for above
        wire = SftpConnection(process.stdout, process.stdin)
        self._stack.push_async_callback(wire.end)
        await wire.begin()
        self._wire, self._place = wire, place
        return wire

    @contextlib.asynccontextmanager
    async def _trouble(self, url: Url) -> AsyncIterator[None]:
        """Return why a connection ended, as `ssh` does."""
        try:
            yield
        except ConnectionEnded as error:
            said = self._said
            await self.close()
            words = await said if said is not None else ""
            raise failures.of_words(f"{url.place} by SFTP", words or str(error)) from error


async def _clear(wire: SftpConnection, top: str) -> None:
    """Remove a folder, the deepest part first; no link is followed."""
    try:
        if not stat.S_ISDIR((await wire.facts(top)).mode):
            return
    except errors.NotFound:
        return
    folders, waiting = [top], [top]
    while waiting:
        above = waiting.pop()
        for name, facts in await wire.list(above):
            path = _join(above, name)
            if name in (".", ".."):
                continue
            if stat.S_ISDIR(facts.mode):
                waiting.append(path)
                folders.append(path)
            else:
                await wire.remove(path)
    for folder in reversed(folders):
        await wire.remove_folder(folder)


async def _linked(wire: SftpConnection, top: str, name: str) -> FileAttributes:
    """Take a link to a file of the same tree for that file, and no other link for anything."""
    real = await wire.real(_join(top, name))
    if real.startswith(f"{top.rstrip('/')}/"):
        facts = await wire.facts(real)
        if stat.S_ISREG(facts.mode):
            return facts
    raise errors.Denied(f"{text.show(name)} is a link that leads out, to a folder or nowhere")


async def _fetch(wire: SftpConnection, path: str, item: TransferItem, folder: str) -> None:
    handle = await wire.open(path, sftp_wire.READ)
    try:
        before = await wire.facts_of(handle)
        if item.size >= 0 and before.size != item.size:
            raise failures.changed(item.name)
        target = await asyncio.to_thread(_open, os.path.join(folder, item.name))
        try:
            at = min(os.fstat(target).st_size, before.size)
            while data := await _stretch(wire, handle, at, min(_STRETCH, before.size - at)):
                await asyncio.to_thread(durable.write_all, target, data, at)
                at += len(data)
            os.ftruncate(target, at)
        except OSError as error:
            raise failures.of_writing(error) from error
        finally:
            os.close(target)
        if await wire.facts_of(handle) != before:
            raise failures.changed(item.name)
    finally:
        if wire.good:
            await wire.close(handle)


async def _stretch(wire: SftpConnection, handle: bytes, at: int, length: int) -> bytes:
    """Read a stretch of a file by many requests; it ends at the first that brings less."""
    if length <= 0:
        return b""
    starts = range(at, at + length, BLOCK)
    asked = [wire.read(handle, one, min(BLOCK, at + length - one)) for one in starts]
    found = bytearray()
    for start, data in zip(starts, await asyncio.gather(*asked), strict=True):
        found += data
        if start + len(data) < min(start + BLOCK, at + length):
            break
    return bytes(found)


async def _send(wire: SftpConnection, path: str, item: TransferItem, folder: str) -> None:
    above, _, _ = path.rpartition("/")
    aside = f"{above}/.{secrets.token_hex(8)}.part"
    flags = sftp_wire.WRITE | sftp_wire.CREATE | sftp_wire.EXCLUSIVE
    handle = await wire.open(aside, flags)
    try:
        with paths.opened(folder, item.name) as source:
            at = 0
            while data := await asyncio.to_thread(os.pread, source, _STRETCH, at):
                blocks = range(0, len(data), BLOCK)
                await asyncio.gather(
                    *(wire.write(handle, at + one, data[one : one + BLOCK]) for one in blocks)
                )
                at += len(data)
        mode = 0o755 if item.executable else 0o644
        await wire.finish(handle, mode=mode, mtime=item.mtime // 1_000_000_000)
        await wire.close(handle)
        await wire.rename(aside, path)
    except errors.PilotageError:
        with contextlib.suppress(errors.PilotageError, ConnectionEnded):
            await wire.remove(aside)
        raise


async def _make_folders(wire: SftpConnection, path: str) -> None:
    try:
        facts = await wire.facts(path, follow=True)
    except errors.NotFound:
        above = path.rpartition("/")[0]
        if above:
            await _make_folders(wire, above)
        with contextlib.suppress(errors.Unavailable):
            # Another may have made it just now; if not, the first file says so.
            await wire.make_folder(path)
        return
    if not stat.S_ISDIR(facts.mode):
        raise errors.Conflict(f"{text.show(path)} is not a folder, but a folder must be put there")


def _open(path: str) -> int:
    return os.open(path, _NEW, 0o600)


async def _one(item: TransferItem) -> AsyncGenerator[TransferItem, None]:
    yield item


def _item(name: str, facts: FileAttributes, url: Url) -> TransferItem:
    if not stat.S_ISREG(facts.mode):
        raise errors.Denied(f"{text.show(name)} at {url} is neither a file nor a folder")
    executable = bool(facts.mode & 0o100)
    return TransferItem(name=name, size=facts.size, mtime=facts.mtime, executable=executable)


def _path(url: Url) -> str:
    """Return a path as the server knows it; `/~/` is the home of the user."""
    plain = url.path.rstrip("/") or "/"
    return plain[3:] or "." if plain.startswith("/~/") or plain == "/~" else plain


def _join(top: str, name: str) -> str:
    return f"{top.rstrip('/')}/{name}" if top and name else top or name
