"""XRootD by its own programs, which every site has that uses it.

The Python binding would need a compiler and the same libraries; a file system of fsspec needs the
binding. `xrdcp` moves a batch by one process, several files at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from typing import ClassVar

from pilotage.base import errors, text
from pilotage.data.transfer import allow, arrival, failures, program
from pilotage.data.transfer.allow import Allowed
from pilotage.data.transfer.keys import NONE, Credentials
from pilotage.data.transfer.model import Flags, TransferItem, TransferListing
from pilotage.data.transfer.program import ProgramResult
from pilotage.data.transfer.url import Url

_LINE = re.compile(
    r"(?P<kind>.)(?P<mode>[rwxsStT-]{9}) +(?:\S+ +\S+ +)?(?P<size>\d+) "
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?P<name>.+)"
)
_AT_ONCE = "8"
#: Files of at least this size are resumed, each by a process of its own.
_BIG = 64 << 20
#: Seconds; by default the client is patient for half an hour.
_PATIENCE = {
    "XRD_CONNECTIONWINDOW": "20", "XRD_CONNECTIONRETRY": "2", "XRD_STREAMTIMEOUT": "60",
    "XRD_REQUESTTIMEOUT": "120", "XRD_STREAMERRORWINDOW": "20",
}  # fmt: skip
#: In a URL of XRootD a path ends at one of these, and lists of files are lines.
_ODD = re.compile(r"[?#\x00-\x1f\x7f]")


class Xrootd:
    """Files of one server or federation."""

    flags: ClassVar[Flags] = Flags(atomic=True)

    def __init__(self, allowed: Allowed, keys: Credentials = NONE) -> None:
        self._allowed = allowed
        self._env = dict(_PATIENCE)
        if keys.token:
            self._env["BEARER_TOKEN_FILE"] = keys.token
        if keys.certificate:
            self._env |= {"X509_USER_PROXY": keys.certificate, "X509_USER_CERT": keys.certificate}
            self._env |= {"X509_USER_KEY": keys.key} if keys.key else {}

    async def close(self) -> None:
        """Nothing is open."""

    async def look(self, url: Url) -> TransferListing:
        """Find out what is there."""
        await self._check(url)
        path = url.path.rstrip("/") or "/"
        facts: dict[str, str] = {}
        async for line in self._lines(url, ["stat", path]):
            name, _, value = line.partition(":")
            facts[name.strip()] = value.strip()
        if "IsDir" in facts.get("Flags", ""):
            return TransferListing(url, folder=True, items=self._walk(url, path))
        above, name = url.above
        try:
            item = TransferItem(name, int(facts["Size"]), mtime=_moment(facts["MTime"]))
        except (KeyError, ValueError) as error:
            raise errors.Unavailable(f"{url}: the answer is not understood") from error
        return TransferListing(above, folder=False, items=_one(item))

    async def _walk(self, url: Url, path: str) -> AsyncGenerator[TransferItem, None]:
        listed = self._lines(url, ["ls", "-l", "-R", path])
        async with contextlib.aclosing(listed):
            async for line in listed:
                found = _LINE.fullmatch(line)
                if found is None:
                    raise errors.Unavailable(f"{url}: {text.show(line)!r} is not understood")
                if found["kind"] == "d":
                    continue
                # Some versions write whole paths, some those below what was asked for.
                name = found["name"].removeprefix(f"{path.rstrip('/')}/")
                yield TransferItem(
                    name, int(found["size"]), mtime=_moment(found["time"]),
                    executable=found["mode"][2] == "x",
                )  # fmt: skip

    async def _lines(self, url: Url, words: list[str]) -> AsyncGenerator[str, None]:
        argv = ["xrdfs", _server(url), *words]
        async with contextlib.aclosing(program.lines(argv, env=self._env)) as lines:
            async for line in lines:
                if isinstance(line, ProgramResult):
                    _judge(line, url)
                elif line.strip():
                    yield line.decode("utf-8", "surrogateescape")

    async def fetch(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Fetch files: small ones by folder, large ones each by itself."""
        await self._check(base)
        groups: dict[str, list[str]] = defaultdict(list)
        for item in items:
            where = _place(base.join(item.name))
            if item.size >= _BIG and arrival.arrived(item, folder):
                target = os.path.join(folder, item.name)
                await self._copy(base, ["--continue", where, target])
            else:
                groups[os.path.dirname(item.name)].append(where)
        for below, places in groups.items():
            await self._copy_all(base, places, f"{os.path.join(folder, below).rstrip('/')}/", [])

    async def send(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Send files; the server keeps one only when it is complete."""
        allow.check(self._allowed, base, write=True)
        await self._check(base)
        groups: dict[str, list[str]] = defaultdict(list)
        for item in items:
            _place(base.join(item.name))
            groups[os.path.dirname(item.name)].append(os.path.join(folder, item.name))
        for below, paths in groups.items():
            where = base.join(below) if below else base
            async for _ in self._lines(base, ["mkdir", "-p", where.path.rstrip("/") or "/"]):
                pass
            await self._copy_all(base, paths, _place(where.join("")), ["--posc"])

    async def _copy_all(
        self, url: Url, sources: Sequence[str], target: str, ways: list[str]
    ) -> None:
        """Copy a list of files into a folder."""
        with tempfile.NamedTemporaryFile("wb", prefix="pilotage-") as listed:
            listed.write(b"".join(os.fsencode(source) + b"\n" for source in sources))
            await asyncio.to_thread(listed.flush)
            more = ["--force", "--parallel", _AT_ONCE, *ways, "--infiles", listed.name, target]
            await self._copy(url, more)

    async def _copy(self, url: Url, words: list[str]) -> None:
        argv = ["xrdcp", "--nopbar", "--silent", *words]
        _judge(await program.run(argv, env=self._env), url)

    async def _check(self, url: Url) -> None:
        allow.check(self._allowed, url)
        await allow.check_addresses(self._allowed, url)


def _judge(said: ProgramResult, url: Url) -> None:
    if said.status:
        raise failures.of_words(f"{url.place} by XRootD", said.words)


def _server(url: Url) -> str:
    user = f"{url.user}@" if url.user else ""
    return f"{url.scheme}://{user}{url.place}"


def _place(url: Url) -> str:
    if _ODD.search(url.path):
        raise errors.Denied(f"XRootD cannot name {text.show(url.path)!r}")
    return f"{_server(url)}/{url.path}"


def _moment(said: str) -> int:
    when = datetime.strptime(said, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    return int(when.timestamp()) * 1_000_000_000


async def _one(item: TransferItem) -> AsyncGenerator[TransferItem, None]:
    yield item
