"""Ray on this machine with two CPUs, without its dashboard."""

from __future__ import annotations

import os
import tempfile
import time

import ray  # type: ignore[import-not-found]
from ray.util.multiprocessing import Pool  # type: ignore[import-not-found]
from serve import check, nothing, run, serve, spawn  # type: ignore[import-not-found]


def main() -> None:
    """Drive it until the input ends."""
    os.chdir(tempfile.mkdtemp())
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    ran, spawned, function = (ray.remote(num_cpus=1)(one) for one in (run, spawn, nothing))
    pools: list[Pool] = []

    def processes(count: int) -> None:
        check(set(ray.get([ran.remote() for _ in range(count)])), {0})

    def spawning(count: int) -> None:
        check(set(ray.get([spawned.remote() for _ in range(count)])), {0})

    def functions(count: int) -> None:
        found = ray.get([function.remote(number) for number in range(count)])
        check(found, list(range(count)))

    def pool() -> Pool:
        # Its two actors would take the place of tasks, so they come only when they are asked for.
        if not pools:
            pools.append(Pool(2))
            pools[0].map(nothing, range(20))
        return pools[0]

    processes(200)
    functions(200)
    time.sleep(1)  # what it still does after its start is not part of any measurement
    serve({
        "processes": processes,
        "functions": functions,
        "process": spawning,
        "function": functions,
        "processes, fastest": lambda count: check(set(pool().map(spawn, range(count))), {0}),
        "functions, fastest": lambda count: check(
            pool().map(nothing, range(count)), list(range(count))
        ),
    })  # fmt: skip
    ray.shutdown()


if __name__ == "__main__":
    main()
