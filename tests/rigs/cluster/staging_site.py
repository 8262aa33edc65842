"""Sites for tests of staging: this machine, directly or through a real `sshd`."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pilotage.base import errors
from pilotage.node.login import cache

_PROGRAM = (sys.executable, "-m", "pilotage.node")
_SRC = str(Path(cache.__file__).parents[4])


class StagingSite:
    """Runs the program here; what it is asked for is answered on the spot."""

    def __init__(self, root: Path, *prefix: str) -> None:
        self.root = str(root)
        root.mkdir(parents=True, exist_ok=True)
        self._prefix = prefix
        #: Names of operations that were asked for, and words of channels.
        self.calls: list[str] = []
        self.channels: list[str] = []
        #: Channels by their number that end after so many bytes.
        self.cuts: dict[int, int] = {}
        self._numbers = itertools.count()

    async def call(self, op: str, *, patience: float = 60.0, **values) -> dict[str, Any]:
        self.calls.append(op)
        acts: dict[str, Callable[..., Any]] = {"have": cache.have}
        try:
            found: dict[str, Any] = await asyncio.to_thread(acts[op], self.root, *values.values())
            return found
        except FileNotFoundError as error:
            raise errors.NotFound(str(error)) from error

    async def bulk(self, words, *, stdin: int | None = None, stdout: int | None = None) -> Process:
        self.channels.append(words[0])
        after = self.cuts.get(next(self._numbers))
        argv = (*self._prefix, *_PROGRAM, *words)
        if after is not None:
            argv = (sys.executable, __file__, words[0], str(after), *argv)
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=PIPE if stdin is None else stdin,
            stdout=PIPE if stdout is None else stdout,
            stderr=PIPE,
            env={**os.environ, "PYTHONPATH": _SRC},
        )


def _cut(way: str, after: int, argv: list[str]) -> None:
    """Stand between a program and its stream, and break off after so many bytes."""
    sends = way == "send"
    ends = (None, PIPE) if sends else (PIPE, None)
    with subprocess.Popen(argv, stdin=ends[0], stdout=ends[1]) as process:
        source = process.stdout.fileno() if process.stdout else 0
        target = process.stdin.fileno() if process.stdin else 1
        while after and (data := os.read(source, min(after, 1 << 16))):
            after -= len(data)
            while data:
                data = data[os.write(target, data) :]
        if not after:
            process.kill()
    sys.exit(255 if not after else process.returncode)


if __name__ == "__main__":
    _cut(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
