"""The page: files of the package, read once, that browsers keep as long as they are the same."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

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


class File(msgspec.Struct, frozen=True):
    """A file of the page."""

    content: bytes
    media: str
    mark: str


class Page:
    """All files of the page; nothing else can be asked for."""

    def __init__(self, folder: Path = FOLDER) -> None:
        """Read them."""
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


def _read(file: Path) -> File:
    content = file.read_bytes()
    media = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    if file.suffix == ".js":
        media = "text/javascript"
    return File(content, media, f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"')
