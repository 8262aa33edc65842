"""Frames of the link, and what of the hub's answers a simulated pilot reads."""

from __future__ import annotations

from typing import Any

import msgspec

Message = dict[str, Any]

_HEAD = 4
_encode = msgspec.json.Encoder().encode

ASK = b"GET /link HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: pilotage\r\n\r\n"
_AGREED = b"HTTP/1.1 101 "
_BLANK = b"\r\n\r\n"


class Grant(msgspec.Struct, frozen=True):
    """A job to start; the rest of it is for pilots that start anything."""

    key: str


class Trouble(msgspec.Struct, frozen=True):
    """Why the hub refuses."""

    code: str = ""
    message: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What the hub says, to pilots and to users."""

    n: int = 0
    p: int = 0
    error: Trouble | None = None
    pilot: int = 0
    lease: float = 0.0
    heartbeat: float = 0.0
    jobs: tuple[Grant, ...] = ()
    stop: tuple[Grant, ...] = ()
    bye: bool = False
    ids: tuple[int, ...] = ()


_decode = msgspec.json.Decoder(Answer).decode


def pack(message: Message) -> bytes:
    """Make a frame."""
    body = _encode(message)
    return len(body).to_bytes(_HEAD, "big") + body


class Reader:
    """Puts answers together from whatever pieces arrive."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._agreed = False

    def feed(self, data: bytes) -> list[Answer]:
        """Add bytes; return the answers that are whole now."""
        self._data += data
        if not self._agreed and not self._agree():
            return []
        found, at = [], 0
        while len(self._data) - at >= _HEAD:
            end = at + _HEAD + int.from_bytes(self._data[at : at + _HEAD], "big")
            if len(self._data) < end:
                break
            found.append(_decode(memoryview(self._data)[at + _HEAD : end]))
            at = end
        del self._data[:at]
        return found

    def _agree(self) -> bool:
        end = self._data.find(_BLANK)
        if end < 0:
            return False
        if not self._data.startswith(_AGREED):
            raise ConnectionError(f"the hub does not go on in frames: {bytes(self._data[:end])!r}")
        del self._data[: end + len(_BLANK)]
        self._agreed = True
        return True
