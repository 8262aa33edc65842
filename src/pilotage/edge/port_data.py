"""Data of jobs at sites whose agents dial this hub: files at the hub's own port.

    GET  /data/PATH     a file, or a part of it; of a folder (PATH/), all its files as lines of JSON
    PUT  /data/PATH     a file, whole or not at all: it is on disk, and checked, before the answer

The key of an agent identifies its site. It may read what the message of an attempt at that site
names, and write below the folder of an attempt that is there now. The agent repeats an interrupted
transfer.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import os
import re
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from email.utils import formatdate
from io import FileIO
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import unquote_to_bytes

import anyio
import anyio.to_thread
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from pilotage.base import crash, durable, errors, paths, text
from pilotage.data.transfer import arrival, failures, headers, plan, tree
from pilotage.edge import records
from pilotage.event import http, http_errors
from pilotage.store import Db

#: What addresses begin with.
TOP = "/data/"
_T = TypeVar("_T")
_BULK = 1 << 20
#: Seconds after which an agent that sends nothing is given up; it begins again.
_IDLE_S = 120.0
#: Files that are written at once, and threads that wait for the disk.
_AT_ONCE, _THREADS = 64, 16
#: Characters of a path, and of each part of it: no file system takes longer ones.
_LONGEST, _LONGEST_PART = 3000, 255
_DEEPEST = 80
_RANGE = re.compile(r"bytes=([0-9]{1,18})-")
_LENGTH = re.compile(r"[0-9]{1,20}")
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: Attempts whose counts are cached; those of others are counted again.
_MOST = 1000


class Hasher(Protocol):
    """A hash object."""

    def update(self, data: bytes, /) -> None:
        """Add bytes."""


class PortDataLimits(msgspec.Struct, frozen=True):
    """Bytes and files that one attempt may leave, and bytes that stay free."""

    bytes: int
    files: int = 100_000
    #: Bytes that stay free for the hub: its store is on the same disk.
    free: int = 1_000_000_000


class _Left(msgspec.Struct):
    """Bytes and files of an attempt, including uploads in progress."""

    files: int = 0
    bytes: int = 0
    #: Files that are on their way.
    busy: int = 0


#: Returns the site that asks, or raises `Denied`.
Who = Callable[[], str]


class PortData:
    """Serves files to agents, to each those of its site."""

    def __init__(self, folder: Path, reader: Db, limits: PortDataLimits) -> None:
        """Take the folder, which is the hub's alone, and a connection that is read from."""
        self._top, self._reader, self._limits = os.path.realpath(folder), reader, limits
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._lanes = anyio.Semaphore(_AT_ONCE)
        self._left: dict[str, _Left] = {}
        #: By file that is on its way, its bytes that are not on disk yet.
        self._coming: dict[str, int] = {}
        self._lock = anyio.Lock()

    async def answer(self, request: Request, who: Who) -> Response:
        """Answer an agent."""
        if request.method == "PUT":
            return await self._put(request, who)
        name = path_of(request.scope["raw_path"])
        self._check(who, name, write=False)
        if name.endswith("/"):
            return await self._list(name)
        return await self._file(request, name)

    def _check(self, who: Who, name: str, *, write: bool) -> str:
        """Return the part of the port that may be used for a file, or refuse it."""
        site = who()
        found = records.may(self._reader, site, name, write=write)
        if not found:
            does = "writes" if write else "reads"
            message = f"no attempt that is at {site} now {does} {text.show(name)}"
            raise errors.Denied(message, hint="its job may have ended, or have been cancelled")
        return found

    # -- reading ---------------------------------------------------------------------------------

    async def _list(self, name: str) -> Response:
        document = await self._do(_listing, os.path.join(self._top, name))
        return Response(document, headers=http_errors.HEADERS, media_type="application/x-ndjson")

    async def _file(self, request: Request, name: str) -> Response:
        file = await self._do(_open, self._top, name)
        if file is None:
            return Response(headers=http_errors.HEADERS, media_type=headers.FOLDER)
        facts = os.fstat(file.fileno())
        size, mark = facts.st_size, f'"{facts.st_mtime_ns:x}-{facts.st_size:x}"'
        at, status = 0, 200
        found = {
            **http_errors.HEADERS, "ETag": mark, "Accept-Ranges": "bytes",
            "Last-Modified": formatdate(facts.st_mtime, usegmt=True),
        }  # fmt: skip
        if facts.st_mode & stat.S_IXUSR:
            found[headers.EXECUTABLE] = "1"
        asked = _RANGE.fullmatch(request.headers.get("range", ""))
        if asked and int(asked[1]) < size and request.headers.get("if-range", mark) == mark:
            at, status = int(asked[1]), 206
            found["Content-Range"] = f"bytes {at}-{size - 1}/{size}"
        found["Content-Length"] = str(size - at)
        if request.method == "HEAD":
            file.close()
            return StreamingResponse(_nothing(), status, found, "application/octet-stream")
        pieces = self._pieces(file, at, size)
        return StreamingResponse(pieces, status, found, "application/octet-stream")

    async def _pieces(self, file: FileIO, at: int, size: int) -> AsyncIterator[bytes]:
        with file:
            while at < size:
                data = await self._do(os.pread, file.fileno(), min(_BULK, size - at), at)
                if not data:
                    return
                yield data
                at += len(data)

    # -- writing ---------------------------------------------------------------------------------

    async def _put(self, request: Request, who: Who) -> Response:
        async with contextlib.aclosing(request.stream()) as stream:
            try:
                name = path_of(request.scope["raw_path"])
                folder = self._check(who, name, write=True)
                if name.endswith("/") or not folder.endswith("/"):
                    raise errors.Denied(f"{text.show(name)} is not a file of an attempt")
                size = _length(request)
                left = await self._account(folder)
                self._check_limits(left, size)
            except errors.PilotageError:
                await http.discard(request, stream)
                raise
            with _counted(left, size):
                async with self._lanes:
                    before = await self._take(request, stream, who, name, size)
            if before is not None:
                left.files, left.bytes = left.files - 1, left.bytes - before
        return Response(status_code=201, headers=http_errors.HEADERS)

    def _check_limits(self, left: _Left, size: int) -> None:
        if left.bytes + size > self._limits.bytes:
            message = f"an attempt leaves at most {self._limits.bytes} bytes at the hub's port"
            raise errors.TooLarge(message, hint="`flows.most` in pilotage.toml is that limit")
        if left.files >= self._limits.files:
            message = f"an attempt leaves at most {self._limits.files} files at the hub's port"
            raise errors.TooLarge(message, hint="pack them into one file")

    async def _account(self, folder: str) -> _Left:
        """Count the files of an attempt; remove partial files of an earlier process."""
        async with self._lock:
            if folder not in self._left:
                idle = [name for name, one in self._left.items() if not one.busy]
                for name in idle[: max(0, len(self._left) - _MOST)]:
                    del self._left[name]
                self._left[folder] = await self._do(_measure, os.path.join(self._top, folder))
            return self._left[folder]

    async def _take(
        self, request: Request, stream: AsyncIterator[bytes], who: Who, name: str, size: int
    ) -> int | None:  # fmt: skip
        """Put a file in its place; return the bytes of the one that was there before, if any."""
        path, part = await self._reserve(name, size)
        try:
            with await self._do(_create, part) as file:
                sha256 = await self._receive(stream, file, size, part)
                _verify(request, sha256, name)
                if headers.EXECUTABLE in request.headers:
                    os.fchmod(file.fileno(), 0o700)
                await self._do(durable.sync_file, file.fileno())
            crash.point("port.received")
            # It may have taken long: the attempt must still be the one that writes there.
            self._check(who, name, write=True)
            before = await self._do(_show, part, path, self._top)
            crash.point("port.shown")
            return before
        finally:
            del self._coming[part]
            with contextlib.suppress(OSError):
                os.unlink(part)

    async def _reserve(self, name: str, size: int) -> tuple[str, str]:
        """Reserve room for a file; return its path, and that of the partial file."""
        async with self._lock:
            coming = size + sum(self._coming.values())
            path = await self._do(_make_room, self._top, name, coming, self._limits.free)
            part = durable.hidden(path)
            self._coming[part] = size
        return path, part

    async def _receive(
        self, stream: AsyncIterator[bytes], file: FileIO, size: int, part: str
    ) -> str:  # fmt: skip
        """Write a body to a file by large pieces; return its digest."""
        digest, at, waiting = hashlib.sha256(), 0, bytearray()
        while at + len(waiting) < size:
            data = await _next(stream)
            waiting += data
            if not data or at + len(waiting) > size:
                raise errors.Unavailable(f"{at + len(waiting)} bytes came instead of {size}")
            if len(waiting) >= _BULK or at + len(waiting) == size:
                await self._do(_write, file, bytes(waiting), at, digest)
                at += len(waiting)
                self._coming[part] = size - at
                waiting.clear()
        return digest.hexdigest()

    async def _do(self, act: Callable[..., _T], *given: object) -> _T:
        """Run a disk operation in a thread."""
        try:
            return await anyio.to_thread.run_sync(
                functools.partial(act, *given), limiter=self._threads
            )
        except (IsADirectoryError, NotADirectoryError, FileExistsError) as error:
            raise errors.Conflict("a file and a folder have the same name") from error
        except OSError as error:
            raise failures.of_writing(error) from error


def path_of(raw: bytes) -> str:
    """Return the path below the folder that an address names; a slash at its end stays.

    All that could lead elsewhere is refused: parts that are empty, `.` or `..`, slashes and zeros
    in disguise, and the names of files that are not whole yet.
    """
    told = raw.decode("latin-1")
    parts = [os.fsdecode(unquote_to_bytes(one)) for one in told.removeprefix(TOP).split("/")]
    folder = parts[-1] == "" and len(parts) > 1
    name = "/".join(parts[:-1] if folder else parts)
    paths.check_name(name, who="an agent")
    odd = any(
        "/" in one or len(os.fsencode(one)) > _LONGEST_PART or durable.HIDDEN.fullmatch(one)
        or any(ord(char) < 32 or ord(char) == 127 for char in one)
        for one in parts
    )  # fmt: skip
    long = len(os.fsencode(name)) > _LONGEST or len(parts) > _DEEPEST
    if odd or long or not told.startswith(TOP):
        raise errors.Denied(f"an agent names a file {text.show(name)[:200]!r}, which cannot be")
    return f"{name}/" if folder else name


def _length(request: Request) -> int:
    told = request.headers.get("content-length", "")
    if not _LENGTH.fullmatch(told):
        raise errors.UsageError("a file is sent with its length", hint="send `Content-Length`")
    return int(told)


@contextlib.contextmanager
def _counted(left: _Left, size: int) -> Iterator[None]:
    """Count a file that is on its way; one that does not arrive counts no more."""
    left.files, left.bytes, left.busy = left.files + 1, left.bytes + size, left.busy + 1
    try:
        yield
    except BaseException:
        left.files, left.bytes = left.files - 1, left.bytes - size
        raise
    finally:
        left.busy -= 1


async def _next(stream: AsyncIterator[bytes]) -> bytes:
    """Return the next bytes that an agent sends; nothing at the end."""
    try:
        async with asyncio.timeout(_IDLE_S):
            return await anext(stream, b"")
    except TimeoutError:
        raise errors.Unavailable(f"nothing came for {_IDLE_S:g} s") from None
    except ClientDisconnect:
        raise errors.Unavailable("the agent left before the end of its file") from None


def _verify(request: Request, sha256: str, name: str) -> None:
    told = headers.digest(request.headers)
    if told and told != sha256:
        raise errors.Unavailable(f"{text.show(name)} arrived with the SHA-256 {sha256}")


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


# -- in threads ------------------------------------------------------------------------------------


def _open(top: str, name: str) -> FileIO | None:
    """Open a file to read; none for a folder. No part of its path may be a link."""
    try:
        if os.path.islink(os.path.join(top, name)):
            raise errors.Denied(f"{text.show(name)} is a link")
        with paths.opened(top, name) as found:
            mode = os.fstat(found).st_mode
            if stat.S_ISDIR(mode):
                return None
            if not stat.S_ISREG(mode):
                raise errors.NotFound(f"there is no file {text.show(name)}")
            return FileIO(os.dup(found))
    except OSError as error:
        raise _missing(error, name) from error


def _missing(error: OSError, name: str) -> errors.PilotageError:
    found = failures.of_reading(error)
    if isinstance(found, errors.NotFound):
        return errors.NotFound(f"there is no {text.show(name)}")
    return found


def _listing(folder: str) -> bytes:
    if not os.path.isdir(folder) or os.path.realpath(folder) != folder.rstrip("/"):
        raise errors.NotFound("there is no such folder")
    lines = [
        text.dump({"name": item.name, "size": item.size, "mtime": item.mtime}).encode() + b"\n"
        for item in tree.walk(folder)
        if not durable.HIDDEN.fullmatch(os.path.basename(item.name))
    ]
    return b"".join(lines)


def _measure(folder: str) -> _Left:
    found = _Left()
    for item in tree.walk(folder) if os.path.isdir(folder) else ():
        if durable.HIDDEN.fullmatch(os.path.basename(item.name)):
            os.unlink(os.path.join(folder, item.name))
        else:
            found.files, found.bytes = found.files + 1, found.bytes + item.size
    return found


def _make_room(top: str, name: str, coming: int, spare: int) -> str:
    """Make the folder of a file, if all that is to come will fit; return its path."""
    os.makedirs(top, mode=0o700, exist_ok=True)
    plan.check_room("the hub's disk", arrival.room(top), files=1, size=coming, spare=spare)
    path = paths.inside(top, name)
    if os.path.islink(path) or os.path.isdir(path):
        raise errors.Conflict(f"{text.show(name)} is a folder or a link")
    return path


def _create(part: str) -> FileIO:
    return FileIO(os.open(part, _NEW, 0o600), "w")


def _write(file: FileIO, data: bytes, at: int, digest: Hasher) -> None:
    durable.write_all(file.fileno(), data, at)
    digest.update(data)


def _show(part: str, path: str, top: str) -> int | None:
    """Give a file its name, and have a power cut keep it and the folders that it is in.

    Return the bytes of the file that had the name before, if there was one.
    """
    before = os.lstat(path).st_size if os.path.lexists(path) else None
    durable.rename(part, path)
    folder = os.path.dirname(os.path.dirname(path))
    while len(folder) >= len(top):
        durable.sync_folder(folder)
        folder = os.path.dirname(folder)
    return before
