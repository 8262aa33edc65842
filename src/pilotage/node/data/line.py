"""A blocking connection to the hub that carries data."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection, Mapping
from typing import Any, Callable

from .. import frame
from ..dial import DialError, Route, dial

_BULK = 1 << 18
#: Seconds in which something must move.
_PATIENCE_S = 60.0
#: Codes of errors after which the same question may have a better answer.
_PASSING = ("E6", "E8")


class CutError(Exception):
    """The connection broke, or the hub cannot answer now; it helps to try again."""


class RefusalError(Exception):
    """The hub does not give or take this."""


class DataConnection:
    """One connection, opened when it is first needed."""

    def __init__(self, way: Route, who: Callable[[], Mapping[str, Any]]) -> None:
        self._way = way
        self._who = who
        self._socket: socket.socket | None = None
        self._rest = b""

    def fetch(self, key: str, digest: str, at: int, take: Callable[[bytes], None]) -> None:
        """Ask for the bytes of some content from an offset on, and hand them on."""
        link = self._open()
        left = int(self._ask(link, {"op": "fetch", "key": key, "sha256": digest, "at": at})["size"])
        left -= at
        while left > 0:
            data = self._some(link, min(left, _BULK))
            take(data)
            left -= len(data)

    def home(
        self, key: str, outputs: Mapping[str, Any], paths: Collection[str],
        check: Callable[[], None],
    ) -> None:  # fmt: skip
        """Bring the files that an attempt has left; return when the hub has them for good."""
        link = self._open()
        executable = [path for path in paths if os.access(path, os.X_OK)]
        words = {"op": "home", "key": key, "outputs": outputs, "executable": executable}
        for path, at, size in self._ask(link, words)["files"]:
            if path not in paths:
                raise RefusalError(f"the hub asks for {path}, which was not left")
            self._send(link, path, at, size, check)
        self._answer(link)

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket, self._rest = None, b""

    def _open(self) -> socket.socket:
        if self._socket is None:
            try:
                self._socket, self._rest = dial(self._way)
            except DialError as error:
                raise CutError(str(error)) from error
            self._socket.settimeout(_PATIENCE_S)
            self._ask(self._socket, {"op": "data", **self._who()})
        return self._socket

    def _ask(self, link: socket.socket, words: Mapping[str, Any]) -> dict[str, Any]:
        try:
            link.sendall(frame.pack(frame.text({**words, "n": 1})))
        except OSError as error:
            raise CutError(str(error)) from error
        return self._answer(link)

    def _answer(self, link: socket.socket) -> dict[str, Any]:
        reader = frame.Reader()
        head = self._exactly(link, 4)
        body = self._exactly(link, int.from_bytes(head, "big"))
        (found,) = reader.feed(head + body)
        if "error" not in found:
            return found
        # It hangs up after that.
        self.close()
        error = found["error"]
        words = str(error.get("message", error))
        if str(error.get("code", "")).startswith(_PASSING):
            raise CutError(words)
        raise RefusalError(words)

    def _exactly(self, link: socket.socket, count: int) -> bytes:
        if count > frame.LIMIT:
            raise CutError("the hub sent an unexpected answer")
        data = b""
        while len(data) < count:
            data += self._some(link, count - len(data))
        return data

    def _some(self, link: socket.socket, most: int) -> bytes:
        if self._rest:
            data, self._rest = self._rest[:most], self._rest[most:]
            return data
        try:
            data = link.recv(most)
        except OSError as error:
            raise CutError(str(error)) from error
        if not data:
            raise CutError("the hub closed the connection")
        return data

    def _send(
        self, link: socket.socket, path: str, at: int, size: int, check: Callable[[], None]
    ) -> None:
        """Send the rest of a file; what the hub says meanwhile is why it does not want it."""
        with open(os.path.realpath(path), "rb", buffering=0) as file:
            file.seek(at)
            while at < size:
                check()
                data = file.read(min(_BULK, size - at))
                if not data:
                    raise CutError(f"{path} is shorter than it was")
                try:
                    link.sendall(data)
                except OSError as error:
                    # It may have said why before it hung up.
                    self._answer(link)
                    raise CutError(str(error)) from error
                at += len(data)
