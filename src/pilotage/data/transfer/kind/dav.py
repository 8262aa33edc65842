"""Strict reader for WebDAV listings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import unquote, urlsplit

# Entities are refused before this sees a document.
from xml.etree import ElementTree as ET

import msgspec

from pilotage.base import errors, text
from pilotage.data.transfer.model import UNKNOWN, TransferItem

#: What is asked for.
QUESTION = (
    b'<?xml version="1.0" encoding="utf-8"?><propfind xmlns="DAV:"><prop><resourcetype/>'
    b"<getcontentlength/><getlastmodified/><getetag/></prop></propfind>"
)
_DAV = "{DAV:}"


class Entry(msgspec.Struct, frozen=True):
    """One line of a listing."""

    item: TransferItem
    folder: bool


def entries(document: bytes, folder: str) -> Iterator[Entry]:
    """Read what is directly in a folder, given by its path without a slash at its end."""
    if b"<!DOCTYPE" in document or b"<!ENTITY" in document:
        raise errors.Denied("the server's listing defines entities, which no listing needs")
    try:
        root = ET.fromstring(document)  # noqa: S314 - see above
    except ET.ParseError as error:
        raise errors.Unavailable(f"the server's listing is not understood: {error}") from error
    for one in root.iter(f"{_DAV}response"):
        path = unquote(urlsplit(one.findtext(f"{_DAV}href") or "").path, "utf-8", "surrogateescape")
        if path.rstrip("/") == folder:
            continue
        above, _, name = path.rstrip("/").rpartition("/")
        if above != folder:
            raise errors.Denied(f"the server lists {text.show(path)} below {text.show(folder)}")
        yield _entry(one, name)


def _entry(one: ET.Element, name: str) -> Entry:
    length = one.findtext(f".//{_DAV}getcontentlength") or ""
    item = TransferItem(
        name=name,
        size=int(length) if length.isdecimal() else UNKNOWN,
        mtime=moment(one.findtext(f".//{_DAV}getlastmodified") or ""),
        mark=one.findtext(f".//{_DAV}getetag") or "",
    )
    return Entry(item, one.find(f".//{_DAV}collection") is not None)


def moment(said: str) -> int:
    """Read a time of HTTP as nanoseconds, 0 if there is none."""
    try:
        when = parsedate_to_datetime(said)
    except (ValueError, TypeError):
        return 0
    return int(when.replace(tzinfo=when.tzinfo or UTC).timestamp()) * 1_000_000_000
