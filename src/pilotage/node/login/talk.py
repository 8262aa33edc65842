"""Frames to and from the hub on two pipes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
from collections.abc import Iterator
from typing import Any

from .. import frame

#: Bytes of one frame, at most: a listing of a large cluster, an order of a thousand jobs.
LIMIT = 1 << 28
_BULK = 1 << 18
#: Odd bytes in names arrive as half characters, which only ASCII can carry.
_encode = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


class Talk:
    """Requests come in one at a time; replies go out whole, from any thread."""

    def __init__(self, inward: int, outward: int) -> None:
        self._inward = inward
        self._outward = outward
        self._turn = threading.Lock()

    def requests(self) -> Iterator[dict[str, Any]]:
        """Wait for requests until the hub has gone."""
        reader = frame.Reader(LIMIT)
        poll = select.poll()
        poll.register(self._inward, select.POLLIN)
        # Without events of its own it shows that nobody reads there any more.
        poll.register(self._outward, 0)
        while not any(fd == self._outward for fd, _ in poll.poll()):
            data = os.read(self._inward, _BULK)
            if not data:
                return
            yield from reader.feed(data)

    def say(self, message: dict[str, Any]) -> None:
        """Send a frame; that a hub has gone is noticed where requests are read."""
        try:
            data = frame.pack(_encode(message), LIMIT)
        except frame.FrameError as error:
            data = frame.pack(_encode({**_stub(message), "error": str(error), "kind": "other"}))
        with self._turn, contextlib.suppress(OSError):
            view = memoryview(data)
            while view:
                view = view[os.write(self._outward, view) :]


def _stub(message: dict[str, Any]) -> dict[str, Any]:
    return {"n": message["n"]} if "n" in message else {}
