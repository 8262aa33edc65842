"""Rsync by its own program, to a daemon (`rsync:`) or over OpenSSH (`rsync+ssh:`).

One process moves a whole batch; rsync resumes and compares checksums of its own.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from typing import ClassVar

import msgspec

from pilotage.base import errors, text
from pilotage.data.transfer import allow, failures, program
from pilotage.data.transfer.allow import Allowed
from pilotage.data.transfer.keys import NONE, Credentials
from pilotage.data.transfer.kind import sftp
from pilotage.data.transfer.model import Flags, TransferItem, TransferListing
from pilotage.data.transfer.program import ProgramResult
from pilotage.data.transfer.url import Url

_LINE = re.compile(
    rb"(?P<kind>.)(?P<mode>[rwxsStT-]{9})\s+(?P<size>[\d,.]+) "
    rb"(?P<time>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) (?P<name>.+)"
)
_ESCAPED = re.compile(rb"\\#([0-7]{3})")
_SECONDS = ["--timeout=60"]
#: What no other files may change: links are left out, devices never made, times and modes kept.
_WAYS = [
    "--recursive", "--times", "--executability", "--no-motd", "--8-bit-output", "--no-implied-dirs",
    "--no-links", "--no-devices", "--no-specials", *_SECONDS,
]  # fmt: skip
#: Exit codes of rsync that are no fault of a connection.
_CREDENTIAL, _SOME_LEFT, _VANISHED = 5, 23, 24


class Rsync:
    """Files of one host."""

    flags: ClassVar[Flags] = Flags(checksum=True, atomic=True, times=True)

    def __init__(self, allowed: Allowed, keys: Credentials = NONE) -> None:
        self._allowed = allowed
        self._keys = keys

    async def close(self) -> None:
        """Nothing is open."""

    async def look(self, url: Url) -> TransferListing:
        """Find out what is there: the first line of a listing tells a folder from a file."""
        await self._check(url)
        lines = self._list(url, [])
        first = [line async for line in lines]
        if not first:
            raise errors.NotFound(f"nothing is at {url}")
        if first[0][0] == b"d":
            return TransferListing(url, folder=True, items=self._walk(url))
        above, name = url.above
        _, item = first[0]
        only = TransferItem(name, item.size, mtime=item.mtime, executable=item.executable)
        return TransferListing(above, folder=False, items=_one(only))

    async def _walk(self, url: Url) -> AsyncGenerator[TransferItem, None]:
        listed = self._list(url.join(""), ["--recursive", "--links"])
        async with contextlib.aclosing(listed):
            async for kind, item in listed:
                if kind == b"-":
                    yield item
                elif kind != b"d":
                    raise errors.Denied(
                        f"{text.show(item.name)} at {url} is a link or a device",
                        hint="rsync does not follow links: only files are taken",
                    )

    async def _list(
        self, url: Url, ways: list[str]
    ) -> AsyncGenerator[tuple[bytes, TransferItem], None]:
        argv = [
            "rsync", "--list-only", "--no-motd", "--8-bit-output", "--no-human-readable", *_SECONDS,
            *ways, *self._ways(url), "--", _place(url),
        ]  # fmt: skip
        async with contextlib.aclosing(program.lines(argv)) as lines:
            async for line in lines:
                if isinstance(line, ProgramResult):
                    self._judge(line, url)
                elif found := _LINE.fullmatch(line):
                    yield found["kind"], _item(found)
                else:
                    said = text.show(line.decode("utf-8", "replace"))
                    raise errors.Unavailable(f"rsync printed an invalid listing: {said!r}")

    async def fetch(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Fetch files by one call; partial files are resumed."""
        await self._check(base)
        top, below = base, ""
        if base.scheme == "rsync":
            # Daemons of rsync 3.5 find listed files only from the top of a module.
            module, _, below = base.path.strip("/").partition("/")
            top = msgspec.structs.replace(base, path=f"/{module}")
        listed = [f"{below.rstrip('/')}/./{item.name}" if below else item.name for item in items]
        ways = ["--inplace", "--partial"]
        await self._move(base, listed, ways, [_place(top.join("")), folder])

    async def send(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Send files by one call; rsync renames each when it is complete."""
        allow.check(self._allowed, base, write=True)
        await self._check(base)
        ways = ["--mkpath"]
        names = [item.name for item in items]
        await self._move(base, names, ways, [f"{folder.rstrip('/')}/", _place(base.join(""))])

    async def _move(self, url: Url, names: Sequence[str], ways: list[str], ends: list[str]) -> None:
        listed = b"".join(_bytes(name) + b"\0" for name in names)
        argv = [
            "rsync", *_WAYS, *ways, "--files-from=-", "--from0", *self._ways(url), "--", *ends
        ]  # fmt: skip
        self._judge(await program.run(argv, given=listed), url)

    def _ways(self, url: Url) -> list[str]:
        if url.scheme == "rsync+ssh":
            # Rsync splits this at blanks as a shell would, and starts it without one.
            return ["--protect-args", "--rsh", shlex.join(sftp.command(url, self._keys)[:-4])]
        return ["--password-file", self._keys.password] if self._keys.password else []

    def _judge(self, said: ProgramResult, url: Url) -> None:
        if said.status == 0:
            return
        if said.status == _CREDENTIAL and "auth" in said.words:
            raise errors.NeedsCredential(f"{url.place} by rsync: {_last(said.words)}")
        if said.status == _VANISHED:
            raise failures.changed(str(url))
        raise failures.of_words(f"{url.place} by rsync", _last(said.words))

    async def _check(self, url: Url) -> None:
        allow.check(self._allowed, url)
        await allow.check_addresses(self._allowed, url)


def _last(words: str) -> str:
    """Leave out rsync's own summary, which says nothing."""
    lines = [line for line in words.splitlines() if not line.startswith("rsync error:")]
    return "\n".join(lines) or words


def _place(url: Url) -> str:
    user = f"{url.user}@" if url.user and url.scheme == "rsync" else ""
    host = f"[{url.host}]" if ":" in url.host else url.host
    if url.scheme == "rsync+ssh":
        return f"{host}:{url.path}"
    port = f":{url.port}" if url.port else ""
    return f"rsync://{user}{host}{port}{url.path}"


def _bytes(name: str) -> bytes:
    # A name that begins with `;` or `#` is a comment in such a list, unless it has a folder.
    return b"./" + name.encode("utf-8", "surrogateescape")


def _item(found: re.Match[bytes]) -> TransferItem:
    raw = _ESCAPED.sub(lambda code: bytes([int(code[1], 8)]), found["name"])
    when = datetime.strptime(found["time"].decode(), "%Y/%m/%d %H:%M:%S").replace(tzinfo=UTC)
    name = raw.decode("utf-8", "surrogateescape")
    size = int(re.sub(rb"\D", b"", found["size"]))
    mtime = int(when.timestamp()) * 1_000_000_000
    return TransferItem(name, size, mtime=mtime, executable=found["mode"][2:3] in (b"x", b"s"))


async def _one(item: TransferItem) -> AsyncGenerator[TransferItem, None]:
    yield item
