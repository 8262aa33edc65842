"""HTTP and WebDAV: ranges to resume, PUT to send, a temporary name where MOVE is known."""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import ClassVar

import httpx2
import msgspec

from pilotage.base import durable, errors, paths, text
from pilotage.data.transfer import arrival, failures, tree
from pilotage.data.transfer.allow import Allowed, Resolve
from pilotage.data.transfer.headers import FOLDER, digest, digest_header
from pilotage.data.transfer.keys import NONE, Credentials
from pilotage.data.transfer.kind import dav
from pilotage.data.transfer.kind.http_wire import Web, judge, lost
from pilotage.data.transfer.model import UNKNOWN, Flags, TransferItem, TransferListing, each
from pilotage.data.transfer.url import Url

#: Files at once.
AT_ONCE = 8
_DEEPEST = 64
_LONGEST_LISTING = 64 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
#: By these a server is asked for the digest of a file, in the old way and in the new one.
_WANT = {"Want-Digest": "sha-256", "Want-Repr-Digest": "sha-256=10"}


class Http:
    """Files of web servers."""

    flags: ClassVar[Flags] = Flags(checksum=True, atomic=True, steady=True)

    def __init__(
        self, allowed: Allowed, keys: Credentials = NONE, resolve: Resolve | None = None
    ) -> None:
        self._web = Web(allowed, keys, resolve)
        self._dav: dict[str, bool] = {}
        self._made: set[str] = set()

    async def close(self) -> None:
        """Let connections go."""
        await self._web.close()

    async def look(self, url: Url) -> TransferListing:
        """Find out what is there; an address that ends with a slash is a folder."""
        if url.path.endswith("/"):
            return await self._folder(url)
        async with self._web.ask("HEAD", url, headers=_WANT) as answer:
            judge(answer, url, 200)
            head = answer.headers
        if head.get("content-type", "").startswith(FOLDER):
            return await self._folder(url.join(""))
        length = head.get("content-length", "")
        above, name = url.above
        item = TransferItem(
            name=name,
            size=int(length) if length.isdecimal() else UNKNOWN,
            sha256=digest(head),
            mtime=dav.moment(head.get("last-modified", "")),
            mark=head.get("etag", ""),
        )
        return TransferListing(above, folder=False, items=listed(item))

    async def _folder(self, url: Url) -> TransferListing:
        if not await self._is_dav(url):
            raise errors.NotFound(
                f"{url} cannot be listed: the server is no WebDAV server",
                hint="fetch single files, or put a manifest there",
            )
        first = await self._entries(url, "")
        return TransferListing(url, folder=True, items=self._walk(url, first))

    async def _walk(self, url: Url, first: list[dav.Entry]) -> AsyncGenerator[TransferItem, None]:
        waiting = [("", first)]
        while waiting:
            below, entries = waiting.pop()
            for entry in entries:
                name = f"{below}{entry.item.name}"
                if not entry.folder:
                    yield msgspec.structs.replace(entry.item, name=name)
                elif name.count("/") > _DEEPEST:
                    raise errors.Denied(f"{text.show(name)} is too deep a folder")
                else:
                    waiting.append((f"{name}/", await self._entries(url, f"{name}/")))

    async def _entries(self, url: Url, below: str) -> list[dav.Entry]:
        where = url.join(below)
        asked = {"Depth": "1", "Content-Type": "application/xml"}
        async with self._web.ask("PROPFIND", where, headers=asked, content=dav.QUESTION) as answer:
            judge(answer, where, 207)
            document = bytearray()
            async for data in body(answer, where):
                document += data
                if len(document) > _LONGEST_LISTING:
                    raise errors.TooLarge(f"{where} lists too much")
        return list(dav.entries(bytes(document), where.path.rstrip("/")))

    async def _is_dav(self, url: Url) -> bool:
        if url.place not in self._dav:
            async with self._web.ask("OPTIONS", url) as answer:
                self._dav[url.place] = "dav" in answer.headers
        return self._dav[url.place]

    # -- fetch -----------------------------------------------------------------------------------

    async def fetch(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Read files, several at once."""
        await each(items, lambda item: self._fetch(base, item, folder), AT_ONCE)

    async def _fetch(self, base: Url, item: TransferItem, folder: str) -> None:
        where = msgspec.structs.replace(base.join(item.name), query=base.query)
        at = arrival.arrived(item, folder)
        # Without something that identifies the content, two halves may not belong together.
        strong = item.mark if item.mark and not item.mark.startswith("W/") else ""
        if at == item.size or not (strong or item.sha256):
            at = 0
        headers = {"Range": f"bytes={at}-"} | ({"If-Range": strong} if strong else {}) if at else {}
        async with self._web.ask("GET", where, headers=headers) as answer:
            judge(answer, where, 200, 206)
            if item.mark and answer.headers.get("etag", item.mark) != item.mark:
                raise failures.changed(item.name)
            if answer.status_code == 206:
                _check_range(answer, at, where)
            else:
                at = 0
            await _write(answer, os.path.join(folder, item.name), at, item, where)

    # -- send ------------------------------------------------------------------------------------

    async def send(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Put files, to temporary names if the server can rename."""
        moves = await self._is_dav(base)
        if moves:
            for name in sorted({os.path.dirname(item.name) for item in items}):
                await self._make_folders(base.join(name) if name else base)
        await each(items, lambda item: self._send(base, item, folder, moves=moves), AT_ONCE)

    async def _send(self, base: Url, item: TransferItem, folder: str, *, moves: bool) -> None:
        where = base.join(item.name)
        above, _ = where.above
        aside = above.join(f".{secrets.token_hex(8)}.part") if moves else where
        with paths.opened(folder, item.name) as source:
            content = functools.partial(_read, source, item.size)
            async with self._web.ask(
                "PUT", aside, headers=self._told(item), content=content, write=True
            ) as answer:
                judge(answer, aside, 200, 201, 204)
        if moves:
            target = f"{where.scheme}://{where.place}{where.quoted}"
            headers = {"Destination": target, "Overwrite": "T"}
            async with self._web.ask("MOVE", aside, headers=headers, write=True) as answer:
                judge(answer, where, 200, 201, 204)

    def _told(self, item: TransferItem) -> dict[str, str]:
        """Describe a file to the server that it goes to."""
        return {"Content-Length": str(item.size), **digest_header(item.sha256)}

    async def clear(self, url: Url, aside: Url) -> None:
        """Remove a folder with all that is in it, as a WebDAV server does it by itself."""
        del aside
        async with self._web.ask("DELETE", url.join(""), write=True) as answer:
            if answer.status_code != 404:
                judge(answer, url, 200, 202, 204)

    async def _make_folders(self, url: Url) -> None:
        path = url.path.rstrip("/")
        if not path or path in self._made:
            return
        async with self._web.ask("MKCOL", url.join(""), write=True) as answer:
            # It is there already, or what it is in is not.
            if answer.status_code == 409:
                again = True
            else:
                judge(answer, url, 200, 201, 301, 405)
                again = False
        if again:
            await self._make_folders(url.above[0])
            async with self._web.ask("MKCOL", url.join(""), write=True) as answer:
                judge(answer, url, 200, 201, 405)
        self._made.add(path)


def _check_range(answer: httpx2.Response, at: int, where: Url) -> None:
    if not answer.headers.get("content-range", "").startswith(f"bytes {at}-"):
        raise errors.Unavailable(f"{where} sends another part than was asked for")


async def _write(
    answer: httpx2.Response, path: str, at: int, item: TransferItem, where: Url
) -> None:
    try:
        target = await asyncio.to_thread(os.open, path, _NEW, 0o600)
        try:
            os.ftruncate(target, at)
            async for data in _gathered(answer, where):
                if item.size >= 0 and at + len(data) > item.size:
                    raise failures.changed(item.name)
                await asyncio.to_thread(durable.write_all, target, data, at)
                at += len(data)
        finally:
            os.close(target)
    except OSError as error:
        raise failures.of_writing(error) from error


async def _gathered(answer: httpx2.Response, where: Url) -> AsyncIterator[bytes]:
    """Give an answer by large pieces; what came before a cut is given too."""
    data = bytearray()
    try:
        async for some in body(answer, where):
            data += some
            if len(data) >= tree.CHUNK:
                yield bytes(data)
                data.clear()
    except errors.Unavailable:
        yield bytes(data)
        raise
    yield bytes(data)


async def body(answer: httpx2.Response, where: Url) -> AsyncIterator[bytes]:
    """Give an answer as it comes; raise `Unavailable` if its end is missing."""
    try:
        async for data in answer.aiter_raw():
            yield data
    except httpx2.HTTPError as error:
        raise lost(where, error) from error


async def _read(source: int, size: int) -> AsyncIterator[bytes]:
    at = 0
    while at < size:
        data = await asyncio.to_thread(os.pread, source, min(tree.CHUNK, size - at), at)
        if not data:
            raise failures.changed("a file that is sent")
        yield data
        at += len(data)


async def listed(*items: TransferItem) -> AsyncGenerator[TransferItem, None]:
    """Give files one after another."""
    for item in items:
        yield item
