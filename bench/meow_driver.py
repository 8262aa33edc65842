"""Runs MEOW by its public API; a program for the environment that has it, started by `peers`."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from meow_base.conductors import (  # type: ignore[import-not-found]
    LocalBashConductor,
    LocalPythonConductor,
)
from meow_base.core import MeowRunner  # type: ignore[import-not-found]
from meow_base.patterns import FileEventPattern, WatchdogMonitor  # type: ignore[import-not-found]
from meow_base.recipes import (  # type: ignore[import-not-found]
    BashHandler,
    BashRecipe,
    PythonHandler,
    PythonRecipe,
)

_BASH = (BashRecipe, BashHandler, LocalBashConductor)
_PYTHON = (PythonRecipe, PythonHandler, LocalPythonConductor)
#: Seconds of sleep of a part that has nothing to do in a measurement.
_NEVER = 1_000_000
_GLANCE_S = 0.01


def main() -> None:
    """Run what the first argument describes, tell how it goes, end when the input ends."""
    config = json.loads(sys.argv[1])
    runner = _runner(config)
    count = _counter(config["until"], runner)
    runner.start()
    _say(ready=True)
    seen = 0
    while True:
        readable, _, _ = select.select([sys.stdin], [], [], _GLANCE_S if count else None)
        if readable:
            if not sys.stdin.readline():
                break
            _say(tally=_tally(runner))
        now = count() if count else 0
        if now != seen:
            seen = now
            _say(count=now, time=time.time())
    # A stop in good order would wait for the longest sleep of any part.
    os._exit(0)


def _runner(config: dict[str, Any]) -> MeowRunner:
    recipe_kind, handler, conductor = _PYTHON if config["python"] else _BASH
    recipe = recipe_kind("work", config["lines"])
    patterns = [
        FileEventPattern(name, config["path"], "work", "infile") for name in config["rules"]
    ]
    Path(config["base"], "in").mkdir(parents=True)
    until, pause = config["until"], config["pause"]
    monitor = WatchdogMonitor(
        config["base"],
        {pattern.name: pattern for pattern in patterns},
        {recipe.name: recipe},
        settletime=config["settle"],
    )
    rest = pause if until == "done" else _NEVER
    conductors = [conductor(pause_time=rest) for _ in range(config["conductors"])]
    return MeowRunner(
        monitor, handler(pause_time=_NEVER if until == "matched" else pause), conductors
    )


def _counter(until: str, runner: MeowRunner) -> Callable[[], int] | None:
    """Say how far it is; jobs that are done are counted from outside."""
    if until == "scheduled":
        return lambda: len(runner.job_queue)
    return (lambda: len(runner.event_queue)) if until == "matched" else None


def _tally(runner: MeowRunner) -> dict[str, int]:
    """Count the events of each rule and file."""
    found = Counter(
        f"{event['event_rule'].pattern.name} {event['event_path']}" for event in runner.event_queue
    )
    return dict(found)


def _say(**news: object) -> None:
    print(json.dumps(news), flush=True)


if __name__ == "__main__":
    main()
