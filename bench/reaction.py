"""Reaction: a file is closed, nothing else goes on, and a payload takes its first time stamp."""

from __future__ import annotations

import time
from pathlib import Path

from bench import ours, peers
from bench.load import Load

_STAMP = Load(recipe="stamp")


def mine(scratch: Path, *, files: int, apart: float = 0.05) -> list[float]:
    """Return the times from the close of each file to the start of its job, in seconds."""
    closed: dict[str, float] = {}
    with ours.hub(ours.books(_STAMP), scratch, busy=False) as one:
        for number in range(files):
            path = one.root / "in" / f"{number}.txt"
            closed[str(path)] = _write(path)
            time.sleep(apart)
        one.wait(lambda: one.jobs() >= files and not one.live(), 60.0)
        printed = one.outputs()
    return [float(printed[path]) - at for path, at in closed.items()]


def theirs(scratch: Path, *, files: int) -> list[float]:
    """Return the same of MEOW, one file at a time."""
    found = []
    with peers.meow(_STAMP, scratch, "done") as one:
        known: set[Path] = set()
        for number in range(files):
            at = _write(one.root / "data" / "in" / f"{number}.txt")
            one.ended(number + 1, 60.0)
            outputs = set((one.root / "job_output").glob("*/stdout.txt"))
            found += [float(new.read_text()) - at for new in outputs - known]
            known = outputs
    return found


def _write(path: Path) -> float:
    with path.open("w") as file:
        file.write("0\n")
    return time.time()
