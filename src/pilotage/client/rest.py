"""Ask the hub by HTTP for what needs no link: jobs as they are now, and pools."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import quote, urlencode

from pilotage import errors
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


def pool(address: Address, name: str) -> dict[str, Any]:
    """See one pool."""
    found: dict[str, Any] = _ask(address, "GET", f"/pools/{quote(name, safe='')}")
    return found


def demand(address: Address, name: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask a pool for cores."""
    found: dict[str, Any] = _ask(address, "PUT", f"/pools/{quote(name, safe='')}/demand", body)
    return found


def _get(address: Address, path: str, query: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    """Read something."""
    given = {name: value for name, value in query.items() if value is not None}
    return _ask(address, "GET", path + (f"?{urlencode(given)}" if given else ""))


def _ask(address: Address, method: str, path: str, body: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - any JSON value
    """Ask for something; what the hub refuses is raised."""
    context = address.context()
    if context is None:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=_TIMEOUT_S)
    else:
        connection = http.client.HTTPSConnection(
            address.host, address.port, timeout=_TIMEOUT_S, context=context
        )
    try:
        sent = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {address.token}"}
        connection.request(method, _ROOT + path, sent, headers)
        reply = connection.getresponse()
        answer = reply.read()
    except (OSError, http.client.HTTPException) as error:
        raise errors.Unavailable(f"cannot reach the hub at {address.name}: {error}") from error
    finally:
        connection.close()
    return _read(reply.status, answer)


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
