"""Run the command line by a clock that a test moves.

`python -m tests.rigs.project.moved_clock FILE SECONDS up ...` is its process.
The file says by how many seconds it is later than the clock of the machine says. What a site itself
counts cannot be moved: a submit command there may take so many seconds.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import anyio

from pilotage.base.clock import WallClock
from pilotage.batch import commands
from pilotage.cli.main import main

#: How long it may take until somebody who sleeps knows that the clock was moved, in seconds.
_GLANCE_S = 0.1


class MovedClock:
    """By how much a clock is ahead, kept in a file so that another process knows it, too."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def seconds(self) -> float:
        """By how many seconds it is ahead."""
        try:
            return float(self.file.read_text())
        except FileNotFoundError:
            return 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        part = self.file.with_suffix(".part")
        part.write_text(str(self.seconds + seconds))
        part.rename(self.file)

    def program(self, submit: float = commands.SUBMIT_S) -> list[str]:
        """Name the module that goes by it, and its first words."""
        return ["tests.rigs.project.moved_clock", str(self.file), str(submit)]


def drive(ahead: MovedClock) -> None:
    """Have the clock of this process be ahead."""
    WallClock.now = lambda self: time.time() + ahead.seconds  # type: ignore[method-assign]
    WallClock.steady = lambda self: time.monotonic() + ahead.seconds  # type: ignore[method-assign]

    async def sleep(self: WallClock, seconds: float) -> None:
        due = self.steady() + seconds
        while (left := due - self.steady()) > 0:  # noqa: ASYNC110 - another process moves it
            await anyio.sleep(min(left, _GLANCE_S))

    WallClock.sleep = sleep  # type: ignore[method-assign]


if __name__ == "__main__":
    drive(MovedClock(Path(sys.argv.pop(1))))
    commands.SUBMIT_S = float(sys.argv.pop(1))
    sys.exit(main())
