"""Parsl's high-throughput executor with two workers, on the loopback interface, not encrypted."""

from __future__ import annotations

import os
import tempfile

import parsl  # type: ignore[import-not-found]
from parsl.config import Config  # type: ignore[import-not-found]
from parsl.executors import HighThroughputExecutor  # type: ignore[import-not-found]
from parsl.providers import LocalProvider  # type: ignore[import-not-found]
from serve import check, nothing, serve, spawn  # type: ignore[import-not-found]


def main() -> None:
    """Drive it until the input ends."""
    os.chdir(tempfile.mkdtemp())
    with parsl.load(_config()):
        command = parsl.bash_app(_command)
        spawned, function = parsl.python_app(spawn), parsl.python_app(nothing)

        def processes(count: int) -> None:
            check({one.result() for one in [command() for _ in range(count)]}, {0})

        def spawning(count: int) -> None:
            check({one.result() for one in [spawned() for _ in range(count)]}, {0})

        def functions(count: int) -> None:
            found = [one.result() for one in [function(number) for number in range(count)]]
            check(found, list(range(count)))

        processes(20)
        functions(20)
        serve({
            "processes": processes,
            "processes, fastest": spawning,
            "functions": functions,
            "process": spawning,
            "function": functions,
        })  # fmt: skip


def _config() -> Config:
    executor = HighThroughputExecutor(
        label="htex",
        address="127.0.0.1",
        loopback_address="127.0.0.1",
        max_workers_per_node=2,
        cores_per_worker=1,
        encrypted=False,
        provider=LocalProvider(init_blocks=1, min_blocks=1, max_blocks=1),
    )
    return Config(
        executors=[executor], strategy="none", usage_tracking=0,
        initialize_logging=False,
    )  # fmt: skip


def _command() -> str:
    return "/bin/true"


if __name__ == "__main__":
    main()
