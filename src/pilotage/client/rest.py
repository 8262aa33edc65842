"""HTTP requests to the hub that need no link."""

from __future__ import annotations

import contextlib
import http.client
import json
from typing import Any
from urllib.parse import urlencode

from pilotage.base import errors
from pilotage.client.where import Address

_ROOT = "/api/v1"
_TIMEOUT_S = 30.0
_KINDS = {401: errors.Denied, 403: errors.Denied, 404: errors.NotFound, 409: errors.Conflict}


def jobs(address: Address, query: dict[str, Any]) -> list[dict[str, Any]]:
    """Read the newest jobs."""
    found: list[dict[str, Any]] = _get(address, "/jobs", query)["jobs"]
    return found


def job(address: Address, number: int) -> dict[str, Any]:
    """Read one job."""
    found: dict[str, Any] = _get(address, f"/jobs/{number}", {})
    return found


def flow(address: Address, number: int) -> dict[str, Any]:
    """Read one workflow."""
    found: dict[str, Any] = _get(address, f"/flows/{number}", {})
    return found


def post(address: Address, path: str, body: dict[str, Any] | None) -> Any:  # noqa: ANN401 - any JSON
    """Ask for something to be done that is done once however often it is asked for."""
    return _ask(address, "POST", path, body)


def _get(address: Address, path: str, query: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    """Read something."""
    given = {name: value for name, value in query.items() if value is not None}
    return _ask(address, "GET", path + (f"?{urlencode(given)}" if given else ""))


def _ask(address: Address, method: str, path: str, body: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - any JSON value
    """Ask for something once."""
    with contextlib.closing(Session(address, _TIMEOUT_S)) as session:
        return session.ask(method, path, body)


class Session:
    """One connection for many questions; one thread at a time may ask."""

    def __init__(self, address: Address, patience: float) -> None:
        """Connect at the first request; `patience` is in seconds."""
        self.address = address
        self._patience = patience
        self._context = address.context()
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:  # noqa: ANN401
        """Ask for something that may be asked for twice; what the hub refuses is raised."""
        used = self._connection is not None
        try:
            return self._once(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not used:
                message = f"cannot reach the hub at {self.address.name}: {error}"
                raise errors.Unavailable(message) from error
        # The hub may have closed an idle connection.
        return self.ask(method, path, body)

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _once(self, method: str, path: str, body: dict[str, Any] | None) -> Any:  # noqa: ANN401
        if self._connection is None:
            self._connection = self._connect()
        sent = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self.address.token}"}
        self._connection.request(method, _ROOT + path, sent, headers)
        reply = self._connection.getresponse()
        return _read(reply.status, reply.read())

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self.address.host, self.address.port
        if self._context is None:
            return http.client.HTTPConnection(host, port, timeout=self._patience)
        return http.client.HTTPSConnection(
            host, port, timeout=self._patience, context=self._context
        )


def _read(status: int, body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        found = json.loads(body)
    except ValueError:
        found = {}
    if status < 400:
        return found
    told = found.get("error", found) if isinstance(found, dict) else {}
    kind = errors.by_code(told["code"]) if "code" in told else _KINDS.get(status)
    message = str(told.get("message", f"the hub answers with status {status}"))
    raise (kind or errors.Unavailable)(message, hint=str(told.get("hint", "")))
