"""Messages by HTTP: `POST /events/TOPIC`, answered once the event is on disk.

    curl --header "Authorization: Bearer $TOKEN" --data @scan.json http://HOST:PORT/events/scan.done

The same `Idempotency-Key` twice is one event. Every error is JSON: `code`, `message`, `hint`.
"""

from __future__ import annotations

import hmac
import re
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from pilotage.base import errors, text
from pilotage.event import message
from pilotage.event.socket import Accept

#: A sender that is silent for this many seconds is disconnected.
IDLE = 30.0
#: When to try again, in seconds, if the store cannot be written to now.
RETRY_AFTER = 5
#: A refused sender has this many seconds to send the rest and read the reason.
_LINGER = 2.0

_NUMBER = re.compile(r"[0-9]{1,20}")
_KEY = re.compile(r"[!-~]{1,200}")
#: HTTP status of each error class; the first class that fits decides.
STATUS: tuple[tuple[type[errors.PilotageError], int], ...] = (
    (errors.TooLarge, 413),
    (errors.Denied, 403),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.TimedOut, 408),
    (errors.Unavailable, 503),
)
_HERE = ((errors.UsageError, 400), *STATUS)


def app(accept: Accept, token: str, max_size: int) -> Starlette:
    """Make the application; posting needs the token."""
    if not token:
        raise errors.UsageError("events by HTTP need a token", hint="else any web page could post")
    door = _Door(accept, token, max_size)
    made = Starlette(
        routes=[
            Route("/events/{topic}", door.post, methods=["POST"]),
        ],
        exception_handlers={
            errors.PilotageError: _failure, HTTPException: _failure, Exception: _failure,
        },
    )  # fmt: skip
    made.router.redirect_slashes = False
    return made


class _Door:
    """Token, size limit and receiver of posted messages."""

    def __init__(self, accept: Accept, token: str, max_size: int) -> None:
        self._accept = accept
        self._wanted = token.encode()
        self._max_size = max_size

    async def post(self, request: Request) -> Response:
        """Receive one message."""
        topic: str = request.path_params["topic"]
        async with aclosing(request.stream()) as stream:
            try:
                self._authorise(request)
                message.check_topic(topic)
                identity = _identity(request)
                body = await read(request, stream, self._max_size)
            except (errors.PilotageError, HTTPException):
                await discard(request, stream)
                raise
        number = await self._accept(topic, body, identity)
        return _json(202, {"event": number, "topic": topic})

    def _authorise(self, request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self._wanted)
        if not same or scheme.lower() != "bearer":
            raise HTTPException(401, headers={"WWW-Authenticate": "Bearer"})


async def read(request: Request, stream: AsyncIterator[bytes], most: int) -> bytes:
    """Read a body of a bounded size; a silent sender is disconnected."""
    declared = request.headers.get("content-length", "")
    _check(int(declared) if _NUMBER.fullmatch(declared) else 0, most)
    chunks: list[bytes] = []
    size = 0
    while chunk := await _chunk(stream):
        chunks.append(chunk)
        size += len(chunk)
        _check(size, most)
    return b"".join(chunks)


def _check(size: int, most: int) -> None:
    if size > most:
        raise errors.TooLarge(
            f"a message has at most {most} bytes",
            hint="put the data into a file and post its name",
        )


async def _chunk(stream: AsyncIterator[bytes]) -> bytes:
    try:
        with anyio.fail_after(IDLE):
            return await anext(stream, b"")
    except TimeoutError:
        raise errors.TimedOut(f"nothing came for {IDLE:g} s") from None
    except ClientDisconnect:
        raise errors.UsageError("the sender left before the end of its message") from None


async def discard(request: Request, stream: AsyncIterator[bytes]) -> None:
    """Read what a refused sender still sends, so that it gets the reason."""
    # Closing with bytes unread would reset the connection and destroy the answer on its way. Who
    # asked whether to send (Expect: 100-continue) has sent nothing yet.
    if "expect" in request.headers:
        return
    with anyio.move_on_after(_LINGER), suppress(ClientDisconnect):
        async for _ in stream:
            pass


def _identity(request: Request) -> str:
    key = request.headers.get("idempotency-key")
    if key is None:
        return uuid.uuid4().hex
    if _KEY.fullmatch(key) is None:
        raise errors.UsageError(
            "the Idempotency-Key cannot be used", hint="1 to 200 visible ASCII characters"
        )
    return key


async def _failure(request: Request, error: Exception) -> Response:
    if isinstance(error, errors.PilotageError):
        return _problem(_status(error), error)
    if isinstance(error, HTTPException):
        return _problem(error.status_code, _routing(request, error), error.headers)
    return _problem(500, errors.PilotageError("something is broken here", hint="see our log"))


def _status(error: errors.PilotageError) -> int:
    return next((status for kind, status in _HERE if isinstance(error, kind)), 500)


def _routing(request: Request, error: HTTPException) -> errors.PilotageError:
    if error.status_code == 401:
        return errors.Denied(
            "the token is missing or wrong", hint="send `Authorization: Bearer <token>`"
        )
    hint = "POST /events/<topic>"
    if error.status_code == 404:
        return errors.NotFound(f"there is nothing at {request.url.path}", hint=hint)
    return errors.UsageError(f"{request.method} {request.url.path}: {error.detail}", hint=hint)


def _problem(
    status: int, error: errors.PilotageError, headers: Mapping[str, str] | None = None
) -> Response:
    more = {"Connection": "close"} | dict(headers or {})
    if status == 503:
        more["Retry-After"] = str(RETRY_AFTER)
    facts = {"code": error.code, "message": error.message, "hint": error.hint}
    return _json(status, facts, more)


def _json(
    status: int, facts: Mapping[str, object], headers: Mapping[str, str] | None = None
) -> Response:
    return Response(text.dump(facts), status, headers, "application/json")
