"""A small web server over a folder, with WebDAV or without, that can be told to misbehave."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit
from xml.sax.saxutils import escape

import uvicorn
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from testbed.ports import free_port

#: What a fault says instead of the answer; nothing means that all goes on.
Fault = Callable[[Request], Response | None]


class Web:
    """Serves a folder; `faults` are asked first, each time."""

    def __init__(self, root: Path, *, dav: bool = True) -> None:
        self.root = root
        self.dav = dav
        self.port = free_port()
        self.faults: list[Fault] = []
        #: The token that is asked for, if any.
        self.token = ""
        #: Whether digests are told.
        self.digests = False
        #: Bytes after which an answer ends early, and seconds between its chunks.
        self.cut = -1
        self.pause = 0.0
        #: Whether the length of files is told.
        self.lengths = True
        self.calls: Counter[str] = Counter()
        self.sent = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        self.calls[request.method] += 1
        for fault in list(self.faults):
            if (answer := fault(request)) is not None:
                break
        else:
            answer = await self._answer(request)
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return Response(status_code=401)
        path = self._path(request.scope["raw_path"].decode())
        match request.method:
            case "OPTIONS":
                return Response(headers={"DAV": "1"} if self.dav else {})
            case "HEAD" | "GET" if path.is_file():
                return self._file(path, request)
            case "HEAD" | "GET":
                kind = {"content-type": "httpd/unix-directory"} if self.dav else {}
                return Response(status_code=200 if path.is_dir() else 404, headers=kind)
            case "PUT":
                return await self._put(path, request)
            case "PROPFIND" if self.dav:
                return self._list(path)
            case "MKCOL" | "MOVE" | "DELETE" if self.dav:
                return self.change(path, request)
        return Response(status_code=405)

    def change(self, path: Path, request: Request) -> Response:
        if request.method == "MKCOL":
            if path.exists() or not path.parent.is_dir():
                return Response(status_code=405 if path.exists() else 409)
            path.mkdir()
        elif request.method == "MOVE":
            path.replace(self._path(urlsplit(request.headers["destination"]).path))
        else:
            found = path.is_dir()
            shutil.rmtree(path, ignore_errors=True)
            return Response(status_code=204 if found else 404)
        return Response(status_code=201)

    def _path(self, raw: str) -> Path:
        return self.root / unquote(raw, "utf-8", "surrogateescape").strip("/")

    def _file(self, path: Path, request: Request) -> Response:
        facts = path.stat()
        headers = {
            "etag": f'"{facts.st_mtime_ns}-{facts.st_size}"',
            "last-modified": formatdate(facts.st_mtime, usegmt=True),
            "accept-ranges": "bytes",
        }
        if self.digests:
            found = hashlib.sha256(path.read_bytes()).digest()
            headers["repr-digest"] = f"sha-256=:{base64.b64encode(found).decode()}:"
        at, status = 0, 200
        asked = request.headers.get("range", "")
        if asked and request.headers.get("if-range", headers["etag"]) == headers["etag"]:
            at, status = int(asked.removeprefix("bytes=").removesuffix("-")), 206
            headers["content-range"] = f"bytes {at}-{facts.st_size - 1}/{facts.st_size}"
        if self.lengths:
            headers["content-length"] = str(facts.st_size - at)
        if request.method == "HEAD":
            return StreamingResponse(iter([]), headers=headers)
        return StreamingResponse(self._chunks(path, at), status_code=status, headers=headers)

    async def _chunks(self, path: Path, at: int):
        with path.open("rb") as file:
            file.seek(at)
            left = self.cut
            while data := file.read(1 << 18 if left < 0 else min(1 << 18, left)):
                self.sent += len(data)
                yield data
                if self.pause:
                    await asyncio.sleep(self.pause)
                left -= len(data)
                if self.cut >= 0 and left <= 0:
                    raise ConnectionAbortedError("told to")

    async def _put(self, path: Path, request: Request) -> Response:
        if not self.dav:
            path.parent.mkdir(parents=True, exist_ok=True)
        if not path.parent.is_dir():
            return Response(status_code=409)
        with path.open("wb") as file:
            async for data in request.stream():
                file.write(data)
        return Response(status_code=201)

    def _list(self, path: Path) -> Response:
        if not path.is_dir():
            return Response(status_code=404)
        lines = "".join(self._line(one) for one in [path, *sorted(path.iterdir())])
        document = f'<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">{lines}</D:multistatus>'
        return Response(document, status_code=207, media_type="application/xml")

    def _line(self, path: Path) -> str:
        facts = path.stat()
        below = str(path.relative_to(self.root))
        href = quote(f"/{'' if below == '.' else below}".encode("utf-8", "surrogateescape"))
        kind = "<D:collection/>" if path.is_dir() else ""
        etag = f'"{facts.st_mtime_ns}-{facts.st_size}"'
        size = "" if path.is_dir() else f"<D:getcontentlength>{facts.st_size}</D:getcontentlength>"
        when = formatdate(facts.st_mtime, usegmt=True)
        return (
            f"<D:response><D:href>{href}</D:href><D:propstat><D:prop><D:resourcetype>{kind}"
            f"</D:resourcetype>{size}<D:getlastmodified>{when}</D:getlastmodified>"
            f"<D:getetag>{escape(etag)}</D:getetag></D:prop></D:propstat></D:response>"
        )


@contextmanager
def serving(root: Path, *, dav: bool = True) -> Iterator[Web]:
    """Have a server within the block."""
    web = Web(root, dav=dav)
    with listening(web, web.port):
        yield web


@contextmanager
def listening(app, port: int) -> Iterator[None]:
    """Serve an application on the loopback within the block, in a thread."""
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(20)


def empty(root: Path) -> None:
    """Remove all that a folder holds."""
    for one in root.iterdir():
        shutil.rmtree(one) if one.is_dir() else one.unlink()
