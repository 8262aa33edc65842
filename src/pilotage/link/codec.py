"""Encoding of the link: an HTTP upgrade, then JSON messages with a length each."""

from __future__ import annotations

from collections.abc import Iterator

from pilotage.base import errors

#: The longest message.
LONGEST = 16 << 20
#: The longest greeting.
_GREETING = 8192
_END = b"\r\n\r\n"


def greeting(host: str) -> bytes:
    """Ask for the link on a connection that speaks HTTP."""
    lines = [f"GET /link HTTP/1.1\r\nHost: {host}", "Connection: Upgrade", "Upgrade: pilotage"]
    return "\r\n".join(lines).encode("ascii") + _END


def frame(message: bytes) -> bytes:
    """Put the length before a message."""
    if len(message) > LONGEST:
        text = f"a message of {len(message)} bytes is longer than {LONGEST}"
        raise errors.TooLarge(text, hint="pass large data as files, and give their paths")
    return len(message).to_bytes(4, "big") + message


class Incoming:
    """Decoder of one connection."""

    def __init__(self) -> None:
        """Wait for the answer to the greeting."""
        self.greeted = False
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take bytes; give the messages that are complete."""
        self._data += data
        if not self.greeted and not self._greet():
            return
        at = 0
        while len(self._data) - at >= 4:
            end = at + 4 + int.from_bytes(self._data[at : at + 4], "big")
            if end - at - 4 > LONGEST:
                raise errors.Unavailable("the hub sent a message that is too long")
            if len(self._data) < end:
                break
            yield bytes(self._data[at + 4 : end])
            at = end
        del self._data[:at]

    def _greet(self) -> bool:
        end = self._data.find(_END)
        if end < 0:
            if len(self._data) > _GREETING:
                raise errors.Unavailable("the server at this address is not a hub")
            return False
        first = bytes(self._data[: self._data.find(b"\r\n")])
        if b" 101 " not in first + b" ":
            said = first.decode("latin-1")[:100]
            hint = "check the address; the hub must be as new as this client"
            raise errors.Unavailable(f"the server at this address has no link ({said})", hint=hint)
        del self._data[: end + len(_END)]
        self.greeted = True
        return True
