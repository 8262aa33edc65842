"""Pilotage as a program has it: `pilotage up` with two cores, and results that are on disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from bench.command import Command
from bench.tasks.drivers.serve import TRUE, check, serve
from pilotage.client import Client, connect
from pilotage.hub.project import Project


def main() -> None:
    """Drive it until the input ends."""
    root = Path(tempfile.mkdtemp(prefix="project-"))
    Project(root).close()
    os.chdir(root)
    with Command(root, ["up", "--cpus", "2"]), connect() as client:
        serve({
            "processes": lambda count: _processes(client, count),
            "functions": lambda count: _functions(client, count),
            "process": lambda count: _processes(client, count),
            "function": lambda _: check(client.submit(_nothing, 1).result(), 1),
        })  # fmt: skip


def _processes(client: Client, count: int) -> None:
    futures = [client.submit([TRUE]) for _ in range(count)]
    check({one.result().state for one in futures}, {"done"})


def _functions(client: Client, count: int) -> None:
    check(list(client.map(_nothing, range(count))), list(range(count)))


def _nothing(number: int) -> int:
    """Be the function that does nothing."""
    return number


if __name__ == "__main__":
    main()
