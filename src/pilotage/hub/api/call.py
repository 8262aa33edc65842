"""One request to the API, its context, and the description of a route."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from pilotage.base.clock import Clock
from pilotage.hub.project import Project
from pilotage.project.tokens import Grant, TokenScope
from pilotage.store import Db, Writer


class ApiContext(msgspec.Struct, frozen=True):
    """The parts of the hub that the API uses."""

    writer: Writer
    #: Opens a connection for one thread; a read-only one will do.
    open_reader: Callable[[], Db]
    clock: Clock
    project: Project
    #: Tells the hub that something was written.
    poke: Callable[[], None]
    #: Says why no jobs are matched now; nothing means that all is well.
    trouble: Callable[[], str] = lambda: ""


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No fields at all."""


class ApiCall(msgspec.Struct, frozen=True):
    """One request, checked."""

    context: ApiContext
    grant: Grant
    #: Each of the type that the route names.
    path: Any
    query: Any
    body: Any
    #: The present, in seconds since 1970.
    now: float


#: `read` runs in a worker thread with a reader, `write` in the transaction of the writer, `live` on
#: the event loop.
Kind = Literal["read", "write", "live"]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One route of the API."""

    method: str
    #: Below `/api/v1`.
    path: str
    #: What a token must be good for.
    scope: TokenScope
    kind: Kind
    #: Takes the connection (or what is live) and the call.
    act: Callable[[Any, ApiCall], Any]
    #: One sentence for people.
    says: str
    #: Parameters in the path and in the query, and the body.
    named: type = Nothing
    query: type = Nothing
    body: type | None = None
    #: The largest body.
    most: int = 65536
    answer: Any
    status: int = 200
    #: Of the answer.
    media: str = "application/json"
