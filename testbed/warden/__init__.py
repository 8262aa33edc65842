"""The process that starts everything of one bed and undoes it when whoever asked for it is gone."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.errors import NotUp
from testbed.journal import Journal
from testbed.processes import Process

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Order:
    """A process to start."""

    argv: list[str]
    env: dict[str, str]
    #: Where its output goes.
    log: str
    cwd: str = "/"
    user: str | None = None


class Warden:
    """The client's end. Closing it, or the death of this process, takes the bed down."""

    def __init__(self, journal: Journal) -> None:
        ours, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "testbed.warden", str(journal.path)],
                cwd=ROOT, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._socket = ours
        self._stream = ours.makefile("rw")

    def start(self, order: Order) -> Process:
        """Start a process that ends with the bed."""
        with self._lock:
            self._stream.write(json.dumps(asdict(order)) + "\n")
            self._stream.flush()
            line = self._stream.readline()
        if not line:
            raise NotUp("The warden was killed.")
        answer = json.loads(line)
        if "error" in answer:
            raise NotUp(f"{order.argv[0]}: {answer['error']}")
        return Process.parse(answer["process"])

    def close(self) -> None:
        """Take the bed down and return when nothing of it is left."""
        self._stream.close()
        self._socket.close()
        self._process.wait()
