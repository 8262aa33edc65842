"""Our own commands that run a project, each in a process of its own and seen from outside."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pilotage.hub.project import Project
from pilotage.hub.service import ADDRESS

_GLANCE_S = 0.01
_PATIENCE_S = 120.0


class Command:
    """A running `pilotage up` or `pilotage hub`."""

    def __init__(self, root: Path, words: Sequence[str]) -> None:
        """Start it and wait until it is ready."""
        self._root = root
        self._words = tuple(words)
        self._log = root.with_suffix(".log").open("ab")
        self._process = self._start()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def memory(self) -> int:
        """Return the bytes of memory that it has to itself."""
        fields = Path(f"/proc/{self.pid}/smaps_rollup").read_text().split()
        return 1024 * (int(fields[fields.index("Rss:") + 1]))

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._process.wait()

    def again(self) -> None:
        """Start it anew after it was killed."""
        self._process = self._start()

    def close(self) -> None:
        """End it as a person would."""
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
        self._log.close()

    def __enter__(self) -> Self:
        """Use it in a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.close()

    def _start(self) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "pilotage", *self._words, "--project", str(self._root)]
        nothing = subprocess.DEVNULL
        process = subprocess.Popen(argv, stdin=nothing, stdout=self._log, stderr=self._log)
        until = time.monotonic() + _PATIENCE_S
        with Project(self._root) as project:
            while not (project.ready() and (project.state / ADDRESS).exists()):
                if process.poll() is not None or time.monotonic() > until:
                    process.kill()
                    tail = self._root.with_suffix(".log").read_text().splitlines()[-20:]
                    raise RuntimeError("\n".join(["it did not get ready:", *tail]))
                time.sleep(_GLANCE_S)
        return process
