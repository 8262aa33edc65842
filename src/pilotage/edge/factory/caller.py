"""Calls a hub: bounded answers, bounded time, and errors that say what to do."""

from __future__ import annotations

import ssl
from typing import Any, TypeVar

import anyio
import httpx2
import msgspec

from pilotage.base import errors, text
from pilotage.edge.factory.files import Known
from pilotage.edge.factory.wire import FactoryEnrol, FactoryOrders, FactoryReport, FactorySecrets

_T = TypeVar("_T")
#: Seconds that a hub has for an answer in all, and the bytes that such an answer has at most.
_PATIENCE_S = 20.0
_LARGEST = 16 << 20
_KINDS = {401: errors.Denied, 403: errors.Denied, 404: errors.NotFound, 409: errors.Conflict}
_WORDS = 300


class Caller:
    """One hub, as a factory speaks with it."""

    def __init__(self, name: str, known: Known) -> None:
        """Get ready; nothing is sent before it is asked for."""
        self._name = name
        context: ssl.SSLContext | bool = True
        if known.way.tls is not None:
            context = ssl.create_default_context(cadata=known.vouch or None)
        try:
            self._client = httpx2.AsyncClient(
                base_url=f"{known.hub.url.rstrip('/')}/api/v1/factory",
                headers={"Authorization": f"Bearer {known.token}"}, verify=context,
                timeout=_PATIENCE_S, follow_redirects=False,
            )  # fmt: skip
        except httpx2.InvalidURL as error:
            message = f"{known.hub.url} is no address of a hub: {error}"
            raise errors.ConfigError(message, hint="such as https://hub.example.org:8420") from None

    async def close(self) -> None:
        """Let go of the connection."""
        await self._client.aclose()

    async def sync(self, report: FactoryReport) -> FactoryOrders:
        """Report what is here, and hear what is wanted."""
        return await self._post("/sync", report, FactoryOrders)

    async def enrol(self, site: str, pilots: tuple[int, ...]) -> FactorySecrets:
        """Get secrets for pilots that are about to be submitted."""
        return await self._post("/enrol", FactoryEnrol(site, pilots), FactorySecrets)

    async def _post(self, path: str, body: Any, kind: type[_T]) -> _T:  # noqa: ANN401 - a message
        try:
            with anyio.fail_after(_PATIENCE_S):
                status, found = await self._exchange(path, text.dump(body).encode())
        except TimeoutError:
            raise errors.Unavailable(f"{self._name} does not answer in time") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise errors.Unavailable(f"cannot reach {self._name}: {error}") from error
        if status != httpx2.codes.OK:
            raise _refusal(self._name, status, found)
        try:
            return msgspec.json.decode(found, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            message = f"the answer of {self._name} is not understood: {str(error)[:_WORDS]}"
            raise errors.Unavailable(message, hint="is it a hub, and of this version?") from None

    async def _exchange(self, path: str, body: bytes) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        async with self._client.stream("POST", path, content=body, headers=headers) as answer:
            found = b""
            async for piece in answer.aiter_bytes():
                found += piece
                if len(found) > _LARGEST:
                    raise errors.Unavailable(f"the answer of {self._name} is too large")
            return answer.status_code, found


def _refusal(name: str, status: int, body: bytes) -> errors.PilotageError:
    """Make an error of what a hub says instead of an answer."""
    kind = _KINDS.get(status, errors.Unavailable)
    try:
        told = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        told = {}
    words = text.show(str(told.get("message", f"it answers with status {status}")))[:_WORDS]
    return kind(f"{name}: {words}", hint=text.show(str(told.get("hint", "")))[:_WORDS])
