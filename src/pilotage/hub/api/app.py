"""The HTTP application: authentication, decoding, dispatch, the web page and metrics."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import mimetypes
import re
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as WebRoute
from starlette.types import ASGIApp

from pilotage.base import errors, text
from pilotage.edge import port_data
from pilotage.edge.port_data import PortData
from pilotage.event import http, http_errors
from pilotage.hub import metrics
from pilotage.hub.api import answers, openapi, pools, routes, sites
from pilotage.hub.api.call import ApiCall, ApiContext, Route
from pilotage.hub.api.live import Live
from pilotage.hub.api.overview import Overviews
from pilotage.hub.api.reader import Readers
from pilotage.hub.metrics import Figures
from pilotage.project.tokens import Grant, TokenGate, TokenScope
from pilotage.store import Db

FOLDER = Path(__file__).parents[2] / "web"
_FIRST = "index.html"
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_LINE = re.compile("[0-9]{1,15}")
_READY_S = 5.0


class Api:
    """The application and its background tasks."""

    def __init__(
        self, context: ApiContext, gate: TokenGate, events: ASGIApp | None = None,
        data: PortData | None = None,
    ) -> None:  # fmt: skip
        """Connect the parts; `events` handles posts to `/events/TOPIC`.

        `data` serves agents of sites at `/data/PATH`. `app` is what a server serves, and
        `live.run` must run beside it.
        """
        self._context = context
        self._gate = gate
        self._data = data
        self._whole = Overviews()
        self._readers = Readers(context.open_reader)
        call_soon = asyncio.get_running_loop().call_soon_threadsafe
        #: Live updates; call its `poke` when the store has changed.
        self.live = Live(self._readers, self._whole, context.clock.now, call_soon)
        self.routes = routes.table(self._whole)
        self.app = self._application(events)

    def _application(self, events: ASGIApp | None) -> Starlette:
        page = Page()
        document = text.dump(openapi.document(self.routes)).encode()
        places = [self._place(path) for path in dict.fromkeys(one.path for one in self.routes)]
        places += [
            WebRoute("/openapi.json", functools.partial(_static, document), methods=["GET"]),
            WebRoute("/metrics", self._metrics, methods=["GET"]),
            WebRoute("/healthz", self._health, methods=["GET"]),
            WebRoute("/readyz", self._ready, methods=["GET"]),
            WebRoute("/", page.first, methods=["GET"]),
            WebRoute("/static/{path:path}", page.file, methods=["GET"]),
        ]
        if events is not None:
            places.append(WebRoute("/events/{topic}", events))
        if self._data is not None:
            serve = functools.partial(self._port, self._data)
            places.append(WebRoute(port_data.TOP + "{path:path}", serve, methods=["GET", "PUT"]))
        failure = http_errors.answer
        made = Starlette(
            routes=places,
            exception_handlers={
                errors.PilotageError: failure, HTTPException: failure, Exception: failure,
            },
        )  # fmt: skip
        made.router.redirect_slashes = False
        return made

    def _place(self, path: str) -> WebRoute:
        """Make one HTTP route of all methods of a path."""
        here = {route.method: route for route in self.routes if route.path == path}
        act = functools.partial(self._dispatch, here)
        return WebRoute(routes.PREFIX + path, act, methods=list(here))

    # -- one request -----------------------------------------------------------------------------

    async def _dispatch(self, here: dict[str, Route], request: Request) -> Response:
        route = here["GET" if request.method == "HEAD" else request.method]
        if route.media == "text/event-stream":
            return await self._stream(route, request)
        return await self._answer(route, request)

    async def _answer(self, route: Route, request: Request) -> Response:
        call = await self._call(route, request)
        found = await self._act(route, call)
        if route.kind == "write":
            if route.scope is TokenScope.ADMIN:
                self._gate.forget()
            self._context.poke()
            self.live.poke()
        return Response(text.dump(found), route.status, http_errors.HEADERS, "application/json")

    async def _act(self, route: Route, call: ApiCall) -> Any:  # noqa: ANN401 - what the route answers
        if route.kind == "read":
            return await self._readers.ask(lambda db: route.act(db, call))
        if route.kind == "live":
            return await route.act(self.live, call)
        step = self._context.writer.submit(lambda db: route.act(db, call))
        return await asyncio.wrap_future(step)

    async def _call(self, route: Route, request: Request) -> ApiCall:
        async with aclosing(request.stream()) as stream:
            try:
                grant = self._grant(request, route.scope)
                named = _convert(dict(request.path_params), route.named, "the path")
                query = _convert(_query(request), route.query, "the query")
                sent = await http.read(request, stream, route.most)
            except errors.PilotageError:
                await http.discard(request, stream)
                raise
        body = _decode(sent, route.body)
        return ApiCall(self._context, grant, named, query, body, self._context.clock.now())

    def _grant(self, request: Request, scope: TokenScope) -> Grant:
        if "token" in request.query_params:
            raise http_errors.NoToken(
                "a token does not belong into an address, where logs would keep it",
                hint="send `Authorization: Bearer <token>`; revoke this one",
            )
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise http_errors.NoToken(
                "there is no token", hint="send `Authorization: Bearer <token>`"
            )
        try:
            return self._gate.check(secret.strip(), scope)
        except errors.Denied as error:
            if "not enough" in error.message:
                raise
            raise http_errors.NoToken(error.message, hint=error.hint) from None

    async def _stream(self, route: Route, request: Request) -> Response:
        call = await self._call(route, request)
        mark = request.headers.get("last-event-id", "")
        since = int(mark) if _LINE.fullmatch(mark) else None
        headers = http_errors.HEADERS | {"X-Accel-Buffering": "no"}
        if request.method == "HEAD":
            return Response(headers=headers, media_type=route.media)
        return StreamingResponse(
            self.live.listen(call, since), headers=headers, media_type=route.media
        )

    # -- what is not in the table ----------------------------------------------------------------

    async def _port(self, data: PortData, request: Request) -> Response:
        def site() -> str:
            grant = self._grant(request, TokenScope.AGENT)
            if not grant.lasting:
                raise http_errors.NoToken("this token enrols an agent and cannot be used here")
            return grant.site

        return await data.answer(request, site)

    async def _metrics(self, request: Request) -> Response:
        self._grant(request, TokenScope.READ)
        now = self._context.clock.now()
        found = await self._readers.ask(lambda db: measure(db, self._whole, now))
        return Response(found, headers=http_errors.HEADERS, media_type=metrics.MEDIA)

    async def _health(self, _: Request) -> Response:
        return _json(200, answers.Health("ok"))

    async def _ready(self, _: Request) -> Response:
        why = [self._context.writer.trouble, self._context.trouble()]
        if not any(why):
            with anyio.move_on_after(_READY_S) as patience:
                await self._context.writer.run(lambda _: None)
            why.append("the store does not answer" if patience.cancelled_caught else "")
        why = [one for one in why if one]
        return _json(503 if why else 200, answers.Health("not ready" if why else "ok", why))


async def _static(content: bytes, _: Request) -> Response:
    return Response(content, headers=http_errors.HEADERS, media_type="application/json")


def _json(status: int, facts: Any) -> Response:  # noqa: ANN401 - any answer
    return Response(text.dump(facts), status, http_errors.HEADERS, "application/json")


def _query(request: Request) -> dict[str, str]:
    items = request.query_params.multi_items()
    if len(items) != len(dict(items)):
        raise errors.UsageError("a parameter is given twice", hint="/openapi.json has them all")
    return dict(items)


def _convert(facts: dict[str, Any], kind: type, where: str) -> Any:  # noqa: ANN401 - of this kind
    try:
        return msgspec.convert(facts, kind, strict=False)
    except msgspec.ValidationError as error:
        raise errors.UsageError(f"in {where}: {error}", hint="/openapi.json has it all") from None


def _decode(sent: bytes, kind: type | None) -> Any:  # noqa: ANN401 - of this kind
    if kind is None:
        return None
    try:
        return msgspec.json.decode(sent, type=kind)
    except msgspec.ValidationError as error:
        raise errors.UsageError(f"in the body: {error}", hint="/openapi.json has it all") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise http_errors.Malformed(f"the body is not JSON: {error}") from None


class PageFile(msgspec.Struct, frozen=True):
    """A file of the page."""

    content: bytes
    media: str
    mark: str


class Page:
    """All files of the page; nothing else can be asked for."""

    def __init__(self, folder: Path = FOLDER) -> None:
        found = (file for file in folder.rglob("*") if file.is_file())
        self._files = {file.relative_to(folder).as_posix(): _read(file) for file in found}

    async def first(self, request: Request) -> Response:
        """Answer with the page itself."""
        return self._answer(request, _FIRST)

    async def file(self, request: Request) -> Response:
        """Answer with one of its files."""
        return self._answer(request, request.path_params["path"])

    def _answer(self, request: Request, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            raise HTTPException(404)
        headers = _HEADERS | {"ETag": file.mark}
        known = request.headers.get("if-none-match", "")
        if file.mark in (one.strip() for one in known.split(",")):
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.media)


def _read(file: Path) -> PageFile:
    content = file.read_bytes()
    media = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    if file.suffix == ".js":
        media = "text/javascript"
    return PageFile(content, media, f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"')


def measure(db: Db, whole: Overviews, now: float) -> str:
    """Read the store; return all metrics as text."""
    view, tally = whole.overview(db, now, now), whole.tally
    figures = Figures(
        counts=view.counts, submitted=tally.submitted, started=tally.started, ended=tally.ended,
        rates=msgspec.structs.asdict(view.rates), pilots=view.pilots, cpus=view.cpus,
        used=view.used, alarms=len(view.alarms),
    )  # fmt: skip
    return metrics.render(figures, pools.newest(db, now), sites.heard(db, now), now)
