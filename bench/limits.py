"""What the machine allows, measured with as little as possible in between."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

import apsw
import msgspec

from bench.load import LINES, Recipe

_BASH = "/bin/bash"
_ROW = ("0123456789abcdef" * 2, "rule_0", "in/k0_000000.txt", "1234-5678-1234567890", 0, 1.5)
_LINE = b"x" * 255 + b"\n"
_TABLE = "CREATE TABLE job (key TEXT UNIQUE, a TEXT, b TEXT, c TEXT, d INTEGER, e REAL) STRICT"


class Spawning(msgspec.Struct, frozen=True):
    """How payloads run with nothing but `posix_spawn` and `waitpid`."""

    #: Payloads a second, with one at a time on each core.
    rate: float
    #: Seconds of wall time of one alone.
    alone: float
    #: Seconds of processor time of the parent for one.
    cpu: float


def spawning(recipe: Recipe, scratch: Path, *, cores: int, times: int) -> Spawning:
    """Run the recipe again and again."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        argv = _script(recipe, Path(folder))
        used = time.process_time()
        begun = time.monotonic()
        for started in range(times):
            os.posix_spawn(argv[0], argv, os.environ)
            if started >= cores - 1:
                os.wait()
        for _ in range(cores - 1):
            os.wait()
        took = time.monotonic() - begun
        used = time.process_time() - used
        alone = [_alone(argv) for _ in range(max(5, times // 10))]
    return Spawning(times / took, statistics.median(alone), used / times)


def stamping(scratch: Path, *, times: int) -> list[float]:
    """Return how long it takes from `posix_spawn` to the first time stamp of a payload."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        argv = _script("stamp", Path(folder))
        out = Path(folder) / "stdout"
        actions = [(os.POSIX_SPAWN_OPEN, 1, str(out), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)]
        found = []
        for _ in range(times):
            begun = time.time()
            os.waitpid(os.posix_spawn(argv[0], argv, os.environ, file_actions=actions), 0)
            found.append(float(out.read_text()) - begun)
    return found


def rows(scratch: Path, *, batch: int, batches: int) -> float:
    """Return how many rows a second SQLite makes durable, so many in each transaction."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        db = apsw.Connection(str(Path(folder) / "store.db"))
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(_TABLE)
        begun = time.monotonic()
        for number in range(batches):
            first = number * batch
            with db:
                db.executemany(
                    "INSERT INTO job VALUES (?, ?, ?, ?, ?, ?)",
                    ((f"{first + i:032x}", *_ROW[1:]) for i in range(batch)),
                )
        took = time.monotonic() - begun
        db.close()
    return batch * batches / took


def syncs(scratch: Path, *, times: int) -> float:
    """Return how many short lines a second can be appended to a file, each on disk by itself."""
    with tempfile.TemporaryFile(dir=scratch) as file:
        begun = time.monotonic()
        for _ in range(times):
            os.write(file.fileno(), _LINE)
            os.fdatasync(file.fileno())
        return times / (time.monotonic() - begun)


def _script(recipe: Recipe, folder: Path) -> list[str]:
    file, trigger = folder / "script", folder / "0.txt"
    file.write_text("\n".join(LINES[recipe]) + "\n")
    trigger.write_text("0\n")
    return [_BASH, str(file), str(trigger)]


def _alone(argv: list[str]) -> float:
    begun = time.monotonic()
    os.waitpid(os.posix_spawn(argv[0], argv, os.environ), 0)
    return time.monotonic() - begun
