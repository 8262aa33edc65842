"""One client of a jail: SFTP on one side, the walls on the other.

This module needs the extra `ssh`, so it is imported only when a jail is opened.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import AsyncIterator, Callable
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread
import asyncssh
from asyncssh.constants import FXF_APPEND, FXF_CREAT, FXF_EXCL, FXF_READ, FXF_TRUNC, FXF_WRITE

from .cell import Cell
from .facts import Change
from .files import Handle
from .tree import failed, steps

_P = ParamSpec("_P")
_T = TypeVar("_T")
#: Bytes that may wait for a client before we stop working for it.
_WAITING = 4 << 20
_WAIT_SECONDS = 0.005
_LISTED_AT_ONCE = 128
_NS = 1_000_000_000


class Session(asyncssh.SFTPServer):
    """Serves a jail; every other way that the class has is shut by what is here."""

    def __init__(self, channel: asyncssh.SSHServerChannel[bytes], cell: Cell) -> None:
        super().__init__(channel)
        self._jail = cell.jail
        self._pace = cell.pace
        self._threads = cell.threads

    async def _do(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Do something in the jail, not sooner than its pace and its reader allow."""
        if delay := self._pace.delay():
            await anyio.sleep(delay)
        while self.channel.get_write_buffer_size() > _WAITING:
            if self.channel.is_closing():
                raise failed(errno.EPIPE)
            await anyio.sleep(_WAIT_SECONDS)
        return await anyio.to_thread.run_sync(
            lambda: self._jail.do(work, *args, **kwargs), limiter=self._threads
        )

    # -- open files ------------------------------------------------------------------------------

    async def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> object:
        """Open a file."""
        mode = 0o666 if attrs.permissions is None else attrs.permissions
        return await self._do(self._jail.files.open, path, _flags(pflags), mode)

    def open56(self, *_: object) -> object:
        """Refuse what only later versions of the protocol have."""
        raise asyncssh.SFTPOpUnsupported("only version 3 is spoken here")

    async def close(self, file_obj: object) -> None:
        """Close a file."""
        await self._do(self._jail.files.close, _handle(file_obj))

    async def read(self, file_obj: object, offset: int, size: int) -> bytes:
        """Read from a file."""
        return await self._do(self._jail.files.read, _handle(file_obj), offset, size)

    async def write(self, file_obj: object, offset: int, data: bytes) -> int:
        """Write to a file."""
        return await self._do(self._jail.files.write, _handle(file_obj), offset, data)

    async def fstat(self, file_obj: object) -> os.stat_result:
        """Tell about a file."""
        return await self._do(self._jail.files.look, _handle(file_obj))

    async def fsetstat(self, file_obj: object, attrs: asyncssh.SFTPAttrs) -> None:
        """Change the facts of a file."""
        handle = _handle(file_obj)
        what = await self._do(self._jail.files.look, handle)
        await self._do(self._jail.files.change, handle, _change(attrs, what))

    async def fsync(self, file_obj: object) -> None:
        """Have a file reach the disk."""
        await self._do(self._jail.files.sync, _handle(file_obj))

    async def fstatvfs(self, _file: object) -> os.statvfs_result:
        """Tell about the file system."""
        return await self._do(self._jail.names.space)

    # -- names -----------------------------------------------------------------------------------

    async def lstat(self, path: bytes) -> os.stat_result:
        """Tell about a name."""
        return await self._do(self._jail.names.look, path)

    async def stat(self, path: bytes) -> os.stat_result:
        """Tell about a name, but never about what a link leads to."""
        what = await self._do(self._jail.names.look, path)
        if stat.S_ISLNK(what.st_mode):
            raise failed(errno.ELOOP)
        return what

    async def setstat(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        """Change the facts of a name."""
        what = await self._do(self._jail.names.look, path)
        await self._do(self._jail.names.change, path, _change(attrs, what))

    async def lsetstat(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        """Change the facts of a name."""
        await self.setstat(path, attrs)

    async def scandir(self, path: bytes) -> AsyncIterator[asyncssh.SFTPName]:
        """List a folder, a few names at a time."""
        names = [b".", b"..", *await self._do(self._jail.names.listing, path)]
        for first in range(0, len(names), _LISTED_AT_ONCE):
            some = names[first : first + _LISTED_AT_ONCE]
            for name, what in await self._do(self._jail.names.looks, path, some):
                yield asyncssh.SFTPName(name, attrs=asyncssh.SFTPAttrs.from_local(what))

    async def remove(self, path: bytes) -> None:
        """Remove a file."""
        await self._do(self._jail.names.remove, path)

    async def mkdir(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        """Make a folder."""
        mode = 0o777 if attrs.permissions is None else attrs.permissions
        await self._do(self._jail.names.make_folder, path, mode)

    async def rmdir(self, path: bytes) -> None:
        """Remove a folder."""
        await self._do(self._jail.names.remove_folder, path)

    async def realpath(self, path: bytes) -> bytes:
        """Write a path in full; nothing is looked up."""
        return b"/" + b"/".join(steps(path))

    async def rename(self, oldpath: bytes, newpath: bytes) -> None:
        """Rename, but not over what is there."""
        await self._do(self._jail.names.rename, oldpath, newpath)

    async def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        """Rename over what is there."""
        await self._do(self._jail.names.replace, oldpath, newpath)

    async def readlink(self, path: bytes) -> bytes:
        """Read a link."""
        return await self._do(self._jail.names.target, path)

    async def symlink(self, oldpath: bytes, newpath: bytes) -> None:
        """Make a link."""
        await self._do(self._jail.names.make_link, oldpath, newpath)

    async def link(self, oldpath: bytes, newpath: bytes) -> None:
        """Give a file another name."""
        await self._do(self._jail.names.make_name, oldpath, newpath)

    async def statvfs(self, _path: bytes) -> os.statvfs_result:
        """Tell about the file system."""
        return await self._do(self._jail.names.space)

    # -- what listings say -----------------------------------------------------------------------

    def format_user(self, uid: int | None) -> str:
        """Name nobody: who uses this machine is not for clients."""
        return "" if uid is None else str(uid)

    def format_group(self, gid: int | None) -> str:
        """Name no group either."""
        return "" if gid is None else str(gid)


def _handle(file: object) -> Handle:
    if not isinstance(file, Handle):
        raise failed(errno.EBADF)
    return file


def _flags(asked: int) -> int:
    """Translate how a file is to be opened."""
    read, write = asked & FXF_READ, asked & (FXF_WRITE | FXF_APPEND)
    flags = os.O_RDWR if read and write else os.O_WRONLY if write else os.O_RDONLY
    for theirs, ours in (
        (FXF_APPEND, os.O_APPEND),
        (FXF_CREAT, os.O_CREAT),
        (FXF_TRUNC, os.O_TRUNC),
        (FXF_EXCL, os.O_EXCL),
    ):
        flags |= ours if asked & theirs else 0
    return flags


def _change(attrs: asyncssh.SFTPAttrs, what: os.stat_result) -> Change:
    """Translate what is to be set."""
    owner = times = None
    if attrs.uid is not None or attrs.gid is not None:
        owner = (
            what.st_uid if attrs.uid is None else attrs.uid,
            what.st_gid if attrs.gid is None else attrs.gid,
        )
    if attrs.atime is not None or attrs.mtime is not None:
        times = (
            what.st_atime_ns if attrs.atime is None else int(attrs.atime) * _NS,
            what.st_mtime_ns if attrs.mtime is None else int(attrs.mtime) * _NS,
        )
    return Change(size=attrs.size, mode=attrs.permissions, owner=owner, times=times)
