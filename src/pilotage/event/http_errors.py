"""Errors as HTTP answers: every one is JSON with `code`, `message` and `hint`."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pilotage.base import errors, text
from pilotage.event import http

#: When to try again, in seconds, if something cannot be reached now.
_RETRY_AFTER = "5"
_log = logging.getLogger("pilotage.hub")
#: What every answer says to browsers.
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
#: The first class that fits decides.
_STATUS = ((errors.UsageError, 422), (errors.ConfigError, 422), *http.STATUS)


class NoToken(errors.Denied):
    """There is no token, or it is no longer valid."""


class Malformed(errors.UsageError):
    """The body is not JSON."""


def status(error: errors.PilotageError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, NoToken):
        return 401
    if isinstance(error, Malformed):
        return 400
    return next((number for kind, number in _STATUS if isinstance(error, kind)), 500)


async def answer(request: Request, error: Exception) -> Response:
    """Answer with an error."""
    if isinstance(error, errors.PilotageError):
        return _answer(status(error), error)
    if isinstance(error, HTTPException):
        return _answer(error.status_code, _routing(request, error), error.headers)
    # Never the request itself: its headers hold a token.
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _answer(500, errors.PilotageError("something is broken here", hint="see the hub's log"))


def _routing(request: Request, error: HTTPException) -> errors.PilotageError:
    hint = "/openapi.json says what there is"
    where = text.show(request.url.path)
    if error.status_code == 404:
        return errors.NotFound(f"there is nothing at {where}", hint=hint)
    return errors.UsageError(f"{request.method} {where}: {error.detail}", hint=hint)


def _answer(
    number: int, error: errors.PilotageError, more: Mapping[str, str] | None = None
) -> Response:
    headers = HEADERS | dict(more or {})
    if number == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if number == 503:
        headers["Retry-After"] = _RETRY_AFTER
    message = str(error) if isinstance(error, errors.BadRule) else error.message
    facts = {"code": error.code, "message": message, "hint": error.hint}
    return Response(text.dump(facts), number, headers, "application/json")
