"""The pilot's own folder, which no other pilot of the node shares."""

from __future__ import annotations

import os
import queue
import socket
import tempfile
import threading

from . import tidy


class Work:
    """A folder that is there while the pilot is."""

    def __init__(self, parent: str, *, keep: bool = False) -> None:
        os.makedirs(parent, exist_ok=True)
        name = f"pilot-{socket.gethostname()}-"
        #: Absolute, since payloads begin elsewhere.
        self.folder = tempfile.mkdtemp(prefix=name, dir=os.path.abspath(parent))
        self.jobs = os.path.join(self.folder, "jobs")
        os.mkdir(self.jobs)
        self._data = os.path.join(self.folder, "data")
        #: Whether folders stay when they are not needed any more.
        self.keep = keep
        self._done: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._janitor = threading.Thread(target=self._tidy, name="janitor", daemon=True)
        self._janitor.start()

    def forget(self, folder: str) -> None:
        """Remove a folder of an attempt, some time; nothing that is not below ours."""
        ours = os.path.dirname(os.path.normpath(folder)) in {self.jobs, self._data}
        if not self.keep and ours:
            self._done.put(folder)

    def remove(self) -> None:
        """Remove everything."""
        self._done.put("")
        self._janitor.join(10.0)
        if not self.keep:
            tidy.remove(self.folder)

    def _tidy(self) -> None:
        while folder := self._done.get():
            tidy.remove(folder)
