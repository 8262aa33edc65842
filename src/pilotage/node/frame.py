"""Frames of the link: four bytes of length, then a JSON object."""

from __future__ import annotations

import json
from typing import Any

#: Bytes of one frame, at most.
LIMIT = 1 << 24

_HEAD = 4
_encode = json.JSONEncoder(check_circular=False, ensure_ascii=False, separators=(",", ":")).encode


class FrameError(Exception):
    """The other side does not speak the protocol."""


def text(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Write a value as JSON that need not be ASCII."""
    return _encode(value)


def pack(body: str, limit: int = LIMIT) -> bytes:
    """Make a frame of JSON; half a character, which UTF-8 cannot hold, becomes a question mark."""
    data = body.encode("utf-8", "replace")
    if len(data) > limit:
        raise FrameError(f"a frame of {len(data)} bytes is too long")
    return len(data).to_bytes(_HEAD, "big") + data


class Reader:
    """Puts frames together from whatever pieces arrive."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._data = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Add bytes, and return the frames that are whole now."""
        self._data += data
        found: list[dict[str, Any]] = []
        at = 0
        while len(self._data) - at >= _HEAD:
            size = int.from_bytes(self._data[at : at + _HEAD], "big")
            if size > self._limit:
                raise FrameError(f"a frame of {size} bytes is too long")
            end = at + _HEAD + size
            if len(self._data) < end:
                break
            found.append(_object(bytes(self._data[at + _HEAD : end])))
            at = end
        del self._data[:at]
        return found


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a frame is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise FrameError("a frame is not an object")
    return value
