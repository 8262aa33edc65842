"""A system that does tasks: a driver in the environment of its own, told what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import environment

OURS = "ours"
PEERS = ("HyperQueue", "Parsl", "Dask", "Ray")
_FOLDER = Path(__file__).parent
_DRIVERS = _FOLDER / "drivers"
_ROOT = _FOLDER.parents[1]
_WARM = 100
#: Ray would check a token with each message.
_SETTINGS = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


def python() -> Path:
    """Return the interpreter of the environment with all peers."""
    return environment.python("tasks", ["-r", str(_FOLDER / "peers.txt")])


class System:
    """A running system."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Wait until it is ready, and hear what it can do."""
        self._process = process
        self.ways = frozenset(self._hear()["ways"])

    def time(self, way: str, count: int, times: int = 1) -> list[float]:
        """Return the seconds of each time that it does so many tasks; it has done some before."""
        self._ask(way, min(count, _WARM), 1)
        return self._ask(way, count, times)

    def _ask(self, way: str, count: int, times: int) -> list[float]:
        if self._process.stdin is not None:
            words = {"way": way, "count": count, "times": times}
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()
        return [float(one) for one in self._hear()["seconds"]]

    def _hear(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError(f"a driver ended: {self._process.args!r}")
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def running(name: str, scratch: Path) -> Iterator[System]:
    """Run a system alone, with all that it writes in a folder of its own."""
    folder = Path(tempfile.mkdtemp(dir=scratch, prefix=f"{name.lower()}-"))
    # Ray's sockets need a short path, so its folder is where it likes.
    place = {} if name == "Ray" else {"TMPDIR": str(folder)}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            _argv(name),
            env=os.environ | _environment(name) | _SETTINGS | place,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield System(process)
        except Exception:
            print((folder / "log").read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            _end(process)


def _argv(name: str) -> Sequence[str]:
    if name == OURS:
        return [sys.executable, "-m", "bench.tasks.ours"]
    return [str(python()), str(_DRIVERS / f"{name.lower()}_driver.py")]


def _environment(name: str) -> dict[str, str]:
    if name == OURS:
        return {"PYTHONPATH": f"{_ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    return {
        "PYTHONPATH": str(_DRIVERS),
        "PATH": f"{python().parent}:{os.environ.get('PATH', '')}",
    }


def _end(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
