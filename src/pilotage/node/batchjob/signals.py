"""What the batch system says to a job: signals, before it takes its node away."""

from __future__ import annotations

import select
import signal
import socket
import time
from types import FrameType

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
        """Hear no more of them, as a process beside the one that does."""
        signal.set_wakeup_fd(-1)
        for name in _ENDING:
            signal.signal(getattr(signal, name), signal.SIG_IGN)

    def heard(self) -> bool:
        """Tell whether one has arrived."""
        if not self.number:
            try:
                self.number = self.inner.recv(1)[0]
                self.at = time.monotonic()
            except BlockingIOError:
                return False
        return True

    def wait(self, seconds: float) -> bool:
        """Wait for one, but no longer than so; tell whether one has arrived."""
        if not self.heard():
            select.select([self.inner], [], [], seconds)
        return self.heard()

    def check(self) -> None:
        """Complain if one has arrived."""
        if self.heard():
            raise Stopped(self.words())

    def words(self) -> str:
        """Say what happened."""
        return f"the batch system ended it (signal {self.number})"


def _note(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the number is read from the socket."""
