"""Records of an item for others: its claim, its start, signs of life, and how it ended."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import threading
import time
from types import FrameType
from typing import Any

from .. import claim, durable

#: What schedulers send before the deadly one; each means that time is up.
_ENDING = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGQUIT")


#: Numbers of the signals by which a batch system ends the processes of a job.
SENT = frozenset(int(getattr(signal, name)) for name in (*_ENDING, "SIGKILL"))


class Stopped(Exception):
    """The batch system wants the job to end."""


class Signals:
    """The first signal that arrived, and when."""

    def __init__(self) -> None:
        self.inner, self._outer = socket.socketpair()
        self.inner.setblocking(False)
        self._outer.setblocking(False)
        #: Its number, and the time on our clock.
        self.number = 0
        self.at = 0.0

    def listen(self) -> None:
        """Have signals arrive here from now on."""
        signal.set_wakeup_fd(self._outer.fileno(), warn_on_full_buffer=False)
        for name in _ENDING:
            signal.signal(getattr(signal, name), _note)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def leave(self) -> None:
        """Ignore them, in a child of the process that handles them."""
        signal.set_wakeup_fd(-1)
        for name in _ENDING:
            signal.signal(getattr(signal, name), signal.SIG_IGN)

    def heard(self) -> bool:
        """Return whether one has arrived."""
        if not self.number:
            try:
                self.number = self.inner.recv(1)[0]
                self.at = time.monotonic()
            except BlockingIOError:
                return False
        return True

    def wait(self, seconds: float) -> bool:
        """Wait for one, but no longer than so; return whether one has arrived."""
        if not self.heard():
            select.select([self.inner], [], [], seconds)
        return self.heard()

    def check(self) -> None:
        """Complain if one has arrived."""
        if self.heard():
            raise Stopped(self.words())

    def words(self) -> str:
        """Return what happened."""
        return f"the batch system ended it (signal {self.number})"


def _note(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the number is read from the socket."""


_EVERY_S = 20.0


def begin(path: str) -> None:
    """Touch a file now and then for as long as this process lives."""
    threading.Thread(target=_beat, args=(path,), daemon=True).start()


def _beat(path: str) -> None:
    while True:
        time.sleep(_EVERY_S)
        with contextlib.suppress(OSError):
            os.utime(path)


#: How long it may take to write something down: before a payload runs, and after the warning.
_CLAIM_S = 300.0
_WARNED_S = 25.0
_GONE_S = 60.0
_SLOWEST_S = 5.0
_GONE = (errno.ENOENT, errno.ENOTDIR)


class ItemRecord:
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
        """Report that it begins; if that fails, its end will be reported."""
        try:
            self._write("started", {**self._facts, "time": time.time()})
        except OSError as error:
            _say(2, f"cannot write {error.filename}: {error.strerror}")

    def testify(self, end: dict[str, Any], outputs: dict[str, Any]) -> bool:
        """Write the evidence, however long it takes; return whether that was possible."""
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
