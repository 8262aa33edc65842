"""The hub that an agent dials: its own port keeps the data of jobs that have no other server.

`hub://port/data/PATH` is a path at that port. Which hub it is, and what proves to it who we are,
stands in the agent's settings and not in the address, so no message can lead a key elsewhere.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import msgspec
from anyio.lowlevel import checkpoint

from pilotage.base import errors, text
from pilotage.data.transfer.headers import EXECUTABLE, FOLDER
from pilotage.data.transfer.kind import dav
from pilotage.data.transfer.kind.http import AT_ONCE, Http, body, listed
from pilotage.data.transfer.kind.http_wire import LIMITS, Body, Web, begin, judge, lost
from pilotage.data.transfer.model import UNKNOWN, TransferItem, TransferListing, each
from pilotage.data.transfer.url import Url

_LONGEST_LISTING = 64 << 20
_LONGEST_PROBLEM = 1 << 16
#: A large file is on disk there before the answer comes.
_TIMES = httpx2.Timeout(300, connect=30)
#: For a connection that does not leave this machine: made at once, and no server passes it.
_TRUSTS_NONE = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class HubAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A hub, and what opens it."""

    #: Such as `https://hub.example.org:8420`.
    url: str
    #: Makes the connection private; nothing if it does not leave this machine.
    tls: ssl.SSLContext | None = None
    #: `http://[user:password@]host:port`; empty means none.
    proxy: str = ""
    #: Reads the key that proves who we are; it is renewed now and then.
    key: Callable[[], str]
    #: Returns a value that changes with the key.
    version: Callable[[], object] = lambda: None


class HubFiles(Http):
    """Files at a hub's port: read by GET, listed as lines of JSON, put whole or not at all."""

    def __init__(self, home: HubAddress) -> None:
        self._web = _Line(home)

    async def look(self, where: Url) -> TransferListing:
        """Find out what is there; an address that ends with a slash is a folder."""
        if where.path.endswith("/"):
            return TransferListing(where, folder=True, items=listed(*await self._list(where)))
        async with self._web.ask("HEAD", where) as answer:
            head = answer.headers
        if head.get("content-type", "").startswith(FOLDER):
            return await self.look(where.join(""))
        above, name = where.above
        length = head.get("content-length", "")
        item = TransferItem(
            name=name,
            size=int(length) if length.isdecimal() else UNKNOWN,
            mtime=dav.moment(head.get("last-modified", "")),
            mark=head.get("etag", ""),
            executable=EXECUTABLE in head,
        )
        return TransferListing(above, folder=False, items=listed(item))

    async def _list(self, where: Url) -> list[TransferItem]:
        document = bytearray()
        async with self._web.ask("GET", where) as answer:
            async for data in body(answer, where):
                document += data
                if len(document) > _LONGEST_LISTING:
                    raise errors.TooLarge(f"{where} lists too much")
        try:
            return [
                msgspec.convert(text.load(line), TransferItem)
                for line in bytes(document).splitlines()
            ]
        except (ValueError, msgspec.ValidationError) as error:
            raise errors.Damaged(f"the listing of {where} is not understood: {error}") from error

    async def send(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Put files; the hub gives each its name when all of it is on disk there."""
        await each(items, lambda item: self._send(base, item, folder, moves=False), AT_ONCE)

    def _told(self, item: TransferItem) -> dict[str, str]:
        """Describe a file to the hub, which gives it its mode."""
        return super()._told(item) | ({EXECUTABLE: "1"} if item.executable else {})

    async def clear(self, where: Url, aside: Url) -> None:
        """Remove nothing: the hub does so when its job is over."""
        del aside
        await checkpoint()
        raise errors.UsageError(f"folders of `{where.scheme}:` cannot be removed")


class _Line(Web):
    """Requests to one hub; it says itself why it refuses something."""

    def __init__(self, home: HubAddress) -> None:
        self._home = home
        self._client = httpx2.AsyncClient(
            timeout=_TIMES, limits=LIMITS, trust_env=False, follow_redirects=False,
            verify=home.tls or _TRUSTS_NONE, proxy=home.proxy or None,
        )  # fmt: skip

    @asynccontextmanager
    async def ask(
        self, method: str, where: Url, *, headers: Mapping[str, str] | None = None,
        content: Body = None, write: bool = False,
    ) -> AsyncIterator[httpx2.Response]:  # fmt: skip
        """Send a request and give its answer; raise what the hub says if that is no success."""
        del write
        sent = {
            **(headers or {}), "Accept-Encoding": "identity",
            "Authorization": f"Bearer {self._home.key()}",
        }  # fmt: skip
        asked = self._client.stream(
            method, f"{self._home.url}{where.quoted}", headers=sent,
            content=content() if callable(content) else content,
        )  # fmt: skip
        try:
            async with AsyncExitStack() as stack:
                answer = await begin(stack, asked, where)
                await _judge(answer, where)
                yield answer
        except httpx2.HTTPError as error:
            raise lost(where, error) from error


async def _judge(answer: httpx2.Response, where: Url) -> None:
    if answer.status_code < 300:
        return
    found: dict[str, Any] = {}
    if answer.headers.get("content-type", "").startswith("application/json"):
        said = bytearray()
        async for data in body(answer, where):
            said += data[: _LONGEST_PROBLEM - len(said)]
        try:
            found = msgspec.json.decode(said, type=dict[str, Any])
        except msgspec.DecodeError:
            found = {}
    if answer.status_code == 401 or not found:
        judge(answer, where)
    # Whatever is wrong at the hub itself may be right later.
    failed = answer.status_code >= 500
    kind = errors.Unavailable if failed else errors.by_code(str(found.get("code")))
    raise kind(f"the hub says: {found.get('message')}", hint=str(found.get("hint", "")))
