"""Messages as events: topic, size, content, and where large ones are stored."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import msgspec

from pilotage.base import durable, errors
from pilotage.event.model import Event, EventKind

#: A larger body is kept in its file only; rules cannot look at its fields.
MAX_FIELDS = 64_000
#: The longest topic.
MAX_TOPIC = 200
#: Fields nested deeper than this are not read: they would come back from no parser.
_MAX_DEPTH = 64

_TOPIC = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_FILE_NAME = re.compile(r"(?!sha256-)[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_FIELDS = msgspec.json.Decoder(dict[str, Any])


def check_topic(topic: str) -> None:
    """Refuse what is not a topic."""
    if len(topic) > MAX_TOPIC:
        raise errors.UsageError(
            f"a topic of {len(topic)} characters is too long", hint=f"use at most {MAX_TOPIC}"
        )
    if _TOPIC.fullmatch(topic) is None:
        raise errors.UsageError(
            f"{topic!r} is not a topic",
            hint="join words of letters, digits, `_` and `-` with dots, as `beam.shutter.open`",
        )


def event(topic: str, body: bytes, path: Path, now: float, identity: str) -> Event:
    """Make the event of a message whose body is kept at `path`."""
    return Event(
        EventKind.MESSAGE, topic, now, identity, size=len(body), other=str(path), data=fields(body)
    )


def fields(body: bytes) -> dict[str, Any]:
    """Read the fields of a body; none unless it is a JSON object of moderate size."""
    if len(body) > MAX_FIELDS:
        return {}
    try:
        found = _FIELDS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if _shallow(found, _MAX_DEPTH) else {}


def spool(folder: Path, body: bytes, name: str) -> Path:
    """Keep a body in a folder so that no crash loses it; the first of a name stays.

    A name that is no safe file name becomes its SHA-256.
    """
    path = folder / (name if _FILE_NAME.fullmatch(name) else f"sha256-{_digest(name)}")
    try:
        if path.exists():
            durable.sync_folder(folder)
        else:
            durable.write(path, body)
    except OSError as error:
        raise errors.StoreUnavailable(
            f"cannot keep a message in {folder}: {error.strerror}",
            hint="check that the folder exists, may be written to, and has free space",
        ) from error
    return path


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def _shallow(value: object, left: int) -> bool:
    if isinstance(value, dict):
        return left > 0 and all(_shallow(item, left - 1) for item in value.values())
    if isinstance(value, list):
        return left > 0 and all(_shallow(item, left - 1) for item in value)
    return True
