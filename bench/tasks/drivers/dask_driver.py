"""Dask distributed on this machine: a scheduler and two workers, without pages and profiles."""

from __future__ import annotations

import os
import tempfile

import dask  # type: ignore[import-not-found]
import dask.bag  # type: ignore[import-not-found]
from distributed import Client, LocalCluster  # type: ignore[import-not-found]
from serve import check, nothing, run, serve, spawn  # type: ignore[import-not-found]

_SETTINGS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.scheduler.active-memory-manager.start": False,
}


def main() -> None:
    """Drive it until the input ends."""
    os.chdir(tempfile.mkdtemp())
    dask.config.set(_SETTINGS)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def processes(count: int) -> None:
            check(set(client.gather(client.map(run, range(count), pure=False))), {0})

        def spawning(count: int) -> None:
            check(set(client.gather(client.map(spawn, range(count), pure=False))), {0})

        def functions(count: int) -> None:
            found = client.gather(client.map(nothing, range(count), pure=False))
            check(found, list(range(count)))

        def chunks(count: int) -> None:
            found = dask.bag.from_sequence(range(count), npartitions=2).map(nothing).compute()
            check(found, list(range(count)))

        processes(20)
        functions(20)
        serve({
            "processes": processes,
            "processes, fastest": spawning,
            "functions": functions,
            "functions, fastest": chunks,
            "process": lambda _: client.submit(spawn, pure=False).result(),
            "function": lambda _: client.submit(nothing, pure=False).result(),
        })  # fmt: skip


if __name__ == "__main__":
    main()
