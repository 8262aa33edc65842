"""What the machine allows: `posix_spawn` and `waitpid` from Python, in several processes."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

TRUE = "/bin/true"


def rate(*, count: int, workers: int) -> float:
    """Return how many processes a second begin and end, one at a time in each worker."""
    each = count // workers
    argv = [sys.executable, "-I", "-S", str(Path(__file__)), str(each)]
    several = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(workers)
    ]
    for one in several:
        _hear(one)
    begun = time.perf_counter()
    for one in several:
        _tell(one)
    for one in several:
        _hear(one)
    took = time.perf_counter() - begun
    for one in several:
        one.communicate()
    return each * workers / took


def alone(*, times: int) -> float:
    """Return the seconds of one process from its start to its end, p50."""
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        _spawn()
        found.append(time.perf_counter() - begun)
    return statistics.median(found)


def _spawn() -> None:
    os.waitpid(os.posix_spawn(TRUE, [TRUE], os.environ), 0)


def _hear(one: subprocess.Popen[bytes]) -> None:
    if one.stdout is not None:
        one.stdout.readline()


def _tell(one: subprocess.Popen[bytes]) -> None:
    if one.stdin is not None:
        one.stdin.write(b"go\n")
        one.stdin.flush()


def main() -> None:
    """Be a worker: get ready, wait for the word, spawn, tell."""
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(sys.argv[1])):
        _spawn()
    print("done", flush=True)


if __name__ == "__main__":
    main()
