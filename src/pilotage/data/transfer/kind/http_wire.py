"""Requests by HTTP to hosts that are allowed, at addresses that were resolved once."""

from __future__ import annotations

import base64
import functools
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeAlias
from urllib.parse import urljoin

import httpx2
import msgspec

from pilotage.base import errors, text
from pilotage.data.transfer import allow, failures, keys, url
from pilotage.data.transfer.allow import Allowed, Resolve
from pilotage.data.transfer.keys import Credentials
from pilotage.data.transfer.url import Url
from pilotage.data.transfer.version import Version

#: What is sent along: bytes, or a function that reads them again after a redirect.
Body: TypeAlias = bytes | Callable[[], AsyncIterable[bytes]] | None

_MOST_REDIRECTS = 5
_TIMES = httpx2.Timeout(60, connect=30)
#: Connections to one server.
LIMITS = httpx2.Limits(max_connections=16, max_keepalive_connections=16)
_PORT = {"http": 80, "https": 443}


class Web:
    """A client that goes only where it may."""

    def __init__(
        self, allowed: Allowed, given: Credentials, resolve: Resolve | None = None
    ) -> None:
        self._allowed = allowed
        self._keys = given
        self._resolve = resolve
        self._pinned: dict[tuple[str, int], str] = {}
        self._client = httpx2.AsyncClient(
            timeout=_TIMES, limits=LIMITS, trust_env=False, follow_redirects=False,
            verify=_context(given),
        )  # fmt: skip

    async def close(self) -> None:
        """Let connections go."""
        await self._client.aclose()

    @asynccontextmanager
    async def ask(
        self, method: str, where: Url, *, headers: Mapping[str, str] | None = None,
        content: Body = None, write: bool = False,
    ) -> AsyncIterator[httpx2.Response]:  # fmt: skip
        """Send a request and give its answer, whatever it says; redirects are checked first."""
        home, secret = _origin(where), self._secret()
        for _ in range(_MOST_REDIRECTS):
            allow.check(self._allowed, where, write=write)
            sent = dict(headers or {}) | {"Accept-Encoding": "identity"}
            # A credential is for the host that it was given for, and no other.
            sent |= secret if _origin(where) == home else {}
            async with AsyncExitStack() as stack:
                answer = await self._one(stack, method, where, sent, content)
                if answer.status_code not in (301, 302, 303, 307, 308):
                    yield answer
                    return
                where = _follow(where, answer.headers.get("location", ""))
        raise errors.Denied(f"{where} redirects too many times")

    async def _one(
        self, stack: AsyncExitStack, method: str, where: Url, headers: dict[str, str],
        content: Body,
    ) -> httpx2.Response:  # fmt: skip
        address = await self._pin(where)
        pinned = msgspec.structs.replace(where, host=address)
        query = f"?{where.query}" if where.query else ""
        body = content() if callable(content) else content
        asked = self._client.stream(
            method, f"{where.scheme}://{pinned.place}{where.quoted}{query}",
            headers=headers | {"Host": where.place}, content=body,
            extensions={"sni_hostname": where.host},
        )  # fmt: skip
        return await begin(stack, asked, where)

    async def _pin(self, where: Url) -> str:
        place = (where.host, where.port)
        if place not in self._pinned:
            self._pinned[place] = await allow.pin(self._allowed, where, self._resolve)
        return self._pinned[place]

    def _secret(self) -> dict[str, str]:
        """Read the credential again: it may have been renewed."""
        if self._keys.token:
            return {"Authorization": f"Bearer {keys.secret(self._keys.token)}"}
        if self._keys.password:
            both = base64.b64encode(keys.secret(self._keys.password).encode()).decode()
            return {"Authorization": f"Basic {both}"}
        return {}


async def begin(
    stack: AsyncExitStack, asked: AbstractAsyncContextManager[httpx2.Response], where: Url
) -> httpx2.Response:
    """Send a request, and return its answer while the stack is open."""
    try:
        return await stack.enter_async_context(asked)
    except (httpx2.HTTPError, AttributeError) as error:
        # httpcore asks a connection for its socket that has none if it was reset at once.
        raise lost(where, error) from error


def judge(answer: httpx2.Response, where: Url, *fine: int) -> None:
    """Raise what an answer means, unless it is one of those that are fine."""
    status = answer.status_code
    if status in fine:
        return
    message = f"{where} answers {status} {text.show(answer.reason_phrase)}".rstrip()
    raise failures.of_status(message, status)


def lost(where: Url, error: Exception) -> errors.Unavailable:
    """Return the error for a server that is unreachable or disconnected."""
    words = text.show(str(error)) or type(error).__name__
    return errors.Unavailable(f"{where} cannot be reached: {words}")


def _follow(where: Url, location: str) -> Url:
    query = f"?{where.query}" if where.query else ""
    target = url.parse(urljoin(f"{where.scheme}://{where.place}{where.quoted}{query}", location))
    if where.scheme == "https" and target.scheme != "https":
        raise errors.Denied(f"{where} leads to {target}, which is not encrypted")
    return target


def _origin(where: Url) -> tuple[str, str, int]:
    return where.scheme, where.host, where.port or _PORT.get(where.scheme, 0)


def _context(given: Credentials) -> ssl.SSLContext:
    own = (given.certificate, given.key, given.authorities)
    usual = ssl.get_default_verify_paths()
    trusted = (usual.cafile or "", usual.capath or "")
    return _read_context(*own, tuple(Version.at(path) for path in (*own, *trusted)))


@functools.lru_cache(maxsize=64)
def _read_context(
    certificate: str, key: str, authorities: str, versions: tuple[Version | None, ...]
) -> ssl.SSLContext:
    """Read certificates, once for each version: all that a system trusts takes some 30 ms."""
    del versions
    context = ssl.create_default_context(cafile=authorities or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate:
        context.load_cert_chain(certificate, key or None)
    return context
