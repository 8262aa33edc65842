"""Pictures that jobs declared as outputs, carried inside the page."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from pilotage import text
from pilotage.store import Db

#: Types of pictures that every browser shows, by the ending of their names.
TYPES = {
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}

#: Pictures, bytes of one and bytes of all that a page carries.
MOST, LARGEST, ALL = 24, 1_500_000, 8_000_000

_PNG = b"\x89PNG\r\n\x1a\n"


class Shown(NamedTuple):
    """A picture in the page."""

    #: Path below the project, for people.
    path: str
    #: The job that declared it.
    job: int
    name: str
    #: The picture as a `data:` address.
    data: str


class Gallery(NamedTuple):
    """Pictures in the page, and how many more there are."""

    shown: list[Shown]
    more: int


def collect(db: Db, base: str, first: int = 0) -> Gallery:
    """Read the pictures that jobs declared, folder by folder, as far as there is room."""
    shown: list[Shown] = []
    more, room = 0, ALL
    for path, job, name in sorted(_pictures(db.rows("result_outputs", first=first)), key=_folder):
        size = _size(path)
        if not size:
            continue
        if len(shown) == MOST or size > min(LARGEST, room):
            more += 1
            continue
        content = _read(path)
        if not content or _is_data(content):
            continue
        room -= len(content)
        kind = TYPES[os.path.splitext(path)[1].lower()]
        data = f"data:{kind};base64,{base64.b64encode(content).decode()}"
        shown.append(Shown(text.show(path.removeprefix(f"{base}/")), job, text.show(name), data))
    return Gallery(shown, more)


def _pictures(rows: Iterable[tuple[str, int, str]]) -> Iterable[tuple[str, int, str]]:
    for stored, job, name in rows:
        path = text.load_path(stored)
        if os.path.splitext(path)[1].lower() in TYPES:
            yield path, job, name


def _folder(row: tuple[str, int, str]) -> str:
    return os.path.dirname(row[0])


def _size(path: str) -> int:
    """Return the size of a file, or 0 if it is none or has left."""
    try:
        found = os.stat(path)
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _read(path: str) -> bytes:
    """Return the content of a file, as far as a page has room for it."""
    try:
        with open(path, "rb") as file:
            return file.read(LARGEST)
    except OSError:
        return b""


def _is_data(content: bytes) -> bool:
    """Say whether it is a PNG with 16 bits of grey: numbers to compute with, black to the eye."""
    return content.startswith(_PNG) and content[24:26] == b"\x10\x00"
