"""What all drivers share: they are told what to do, line by line, and say how long it took.

Only the standard library: each driver runs in the environment of its own system.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

#: Does so many tasks and returns when the last result is here.
Way = Callable[[int], object]

TRUE = "/bin/true"

# Systems and the programs that they start print what they like; it must not mix with answers.
_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def serve(ways: Mapping[str, Way]) -> None:
    """Say which ways there are, then do what each line of the input asks for, until it ends."""
    _say({"ways": sorted(ways)})
    for line in sys.stdin:
        asked = json.loads(line)
        way, count = ways[asked["way"]], asked["count"]
        _say({"seconds": [_timed(way, count) for _ in range(asked["times"])]})


def run(_: object = None) -> int:
    """Run a process that does nothing, as Python's manual has it."""
    return subprocess.run([TRUE], check=True).returncode


def spawn(_: object = None) -> int:
    """Run a process that does nothing, in the cheapest way that Python has."""
    process = os.posix_spawn(TRUE, [TRUE], os.environ)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def nothing(number: int = 0) -> int:
    """Be the function that does nothing."""
    return number


def check(found: object, wanted: object) -> None:
    """Refuse a result that is not what it must be: a fast wrong answer is no figure."""
    if found != wanted:
        raise RuntimeError("a system returned something else than it must")


def _timed(way: Way, count: int) -> float:
    begun = time.perf_counter()
    way(count)
    return time.perf_counter() - begun


def _say(message: Mapping[str, object]) -> None:
    print(json.dumps(message), file=_answers, flush=True)
