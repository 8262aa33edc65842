"""What others learn of an item: its claim, the news that it has begun, the evidence of its end."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from typing import Any

from .. import claim, durable
from .signals import Signals

#: How long it may take to write something down: before a payload runs, and after the warning.
_CLAIM_S = 300.0
_WARNED_S = 25.0
_GONE_S = 60.0
_SLOWEST_S = 5.0
_GONE = (errno.ENOENT, errno.ENOTDIR)


class Record:
    """The files of one item that the hub looks at."""

    def __init__(self, folder: str, number: int, facts: dict[str, Any], signals: Signals) -> None:
        self._folder = folder
        self._number = number
        self._facts = facts
        self._signals = signals
        self._news = os.path.join(os.path.dirname(os.path.dirname(folder)), "news")

    @property
    def claimed(self) -> str:
        """Name the file that says who has claimed the item."""
        return os.path.join(claim.path(self._folder, self._number), "by.json")

    def claim(self) -> bool | None:
        """Claim the item; false if another has, nothing if that could not be found out."""
        by = {**self._facts, "time": time.time()}
        deadline = time.monotonic() + _CLAIM_S
        pause = 0.1
        while True:
            try:
                holder = claim.take(self._folder, self._number, by)
            except OSError as error:
                _say(2, f"cannot claim {error.filename}: {error.strerror}")
                late = error.errno in _GONE or time.monotonic() > deadline
                if self._signals.wait(pause) or late:
                    return None
                pause = min(2 * pause, _SLOWEST_S)
                continue
            if holder is None:
                return True
            _say(1, f"duplicate: {json.dumps(holder)}")
            return False

    def announce(self) -> None:
        """Tell that it begins; if that cannot be told, its end will be."""
        try:
            self._write("started", {**self._facts, "time": time.time()})
        except OSError as error:
            _say(2, f"cannot write {error.filename}: {error.strerror}")

    def testify(self, end: dict[str, Any], outputs: dict[str, Any]) -> bool:
        """Write the evidence, however long it takes; tell whether that was possible."""
        body = {**self._facts, "time": time.time(), "end": end, "outputs": outputs}
        begun = time.monotonic()
        pause = 0.05
        while True:
            try:
                self._write("ended", body)
                return True
            except OSError as error:
                _say(2, f"cannot write {error.filename}: {error.strerror}")
                now = time.monotonic()
                warned = self._signals.heard() and now > self._signals.at + _WARNED_S
                if warned or (error.errno in _GONE and now > begun + _GONE_S):
                    return False
            time.sleep(pause)
            pause = min(2 * pause, _SLOWEST_S)

    def _write(self, kind: str, body: dict[str, Any]) -> None:
        name = f"{self._facts['key']}.{self._number}.{kind}"
        part = os.path.join(self._news, f".{name}.part")
        durable.write(os.path.join(self._news, name), json.dumps(body), part)


def _say(stream: int, words: str) -> None:
    """Leave words for people in the batch system's own output, which may be on a full disk."""
    with contextlib.suppress(OSError):
        os.write(stream, f"{words}\n".encode())
