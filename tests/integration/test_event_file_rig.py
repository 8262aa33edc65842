"""What the tests of the file source share: a source in a thread on a directory of its own."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Self

from pilotage.base.clock import WallClock
from pilotage.event.file import FileSource, Options
from pilotage.event.model import Event, EventKind, FileVersion
from tests.rigs.project.file_events import Memory

ALL = frozenset(kind for kind in EventKind if kind.startswith(("file.", "dir.")))
WHOLE = frozenset({EventKind.FILE_CLOSED, EventKind.FILE_MOVED, EventKind.FILE_EXISTING})
#: A machine under load is slow, not wrong.
PATIENCE = 60.0


class Below:
    """All that is below some directories."""

    def __init__(self, *roots: str) -> None:
        self.roots = roots

    def descend(self, directory: str) -> bool:
        return self.inside(directory) or any(
            root.startswith(directory.rstrip("/") + "/") for root in self.roots
        )

    def inside(self, directory: str) -> bool:
        return any(directory == root or directory.startswith(root + "/") for root in self.roots)


def eventually(condition: Callable[[], object], what: str = "") -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what or "it never happened"
        time.sleep(0.005)


class Rig:
    """A running file source, and what it put."""

    def __init__(self, *roots, kinds=ALL, memory=None, wait=True, **options) -> None:
        self.memory = memory or Memory()
        self.warnings: list[str] = []
        self.source = FileSource(
            Below(*map(str, roots)),
            kinds,
            self.memory,
            self.memory,
            WallClock(),
            Options(**options),
            self.warnings.append,
        )
        self._start = len(self.memory.batches)
        self._wait = wait
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.source.run()
        except BaseException as error:
            self._error = error
            raise

    def __enter__(self) -> Self:
        self._thread.start()
        if self._wait:
            assert self.source.ready.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self.source.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        assert self._error is None

    def hold(self) -> threading.Lock:
        """Return what keeps the kernel's queue from being read while it is held."""
        assert self.source._queue is not None
        return self.source._queue.gate

    def events(self) -> list[Event]:
        return [event for batch in self.memory.batches[self._start :] for event in batch.events]

    def said(self) -> list[tuple[EventKind, str]]:
        return [(event.kind, event.subject) for event in self.events()]

    def of(self, path) -> list[EventKind]:
        return [event.kind for event in self.events() if event.subject == str(path)]

    def await_said(self, kind: EventKind, path) -> Event:
        def found() -> list[Event]:
            return [e for e in self.events() if e.kind == kind and e.subject == str(path)]

        eventually(found, f"no {kind} of {path!s} in {self.said()}")
        return found()[-1]

    def whole(self) -> Counter[tuple[str, str]]:
        """Return how often each version of each file was said to be complete."""
        return Counter((e.subject, e.version) for e in self.events() if e.kind in WHOLE)

    def quiet(self, seconds: float = 0.3) -> None:
        """Wait until nothing has been put for a while."""
        seen, since = -1, time.monotonic()
        while time.monotonic() - since < seconds:
            now = len(self.memory.batches)
            if now != seen:
                seen, since = now, time.monotonic()
            time.sleep(0.01)


def version(path) -> str:
    now = Path(path).stat()
    return str(FileVersion(now.st_ino, now.st_size, now.st_mtime_ns))


def present(*roots) -> dict[str, str]:
    """Return the version of each regular file below some directories."""
    return {
        path: version(path)
        for root in roots
        for place, _, names in os.walk(root)
        for path in (f"{place}/{name}" for name in names)
        if Path(path).is_file()
    }
