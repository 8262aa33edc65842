"""HyperQueue by its Python interface: one server, one worker with two cores, no journal."""

from __future__ import annotations

import os
import tempfile
import time

from hyperqueue import Client, Job, LocalCluster  # type: ignore[import-not-found]
from hyperqueue.cluster import WorkerConfig  # type: ignore[import-not-found]
from hyperqueue.job import SubmittedJob  # type: ignore[import-not-found]
from serve import TRUE, check, serve  # type: ignore[import-not-found]

_GLANCE_S = 0.002


def main() -> None:
    """Drive it until the input ends."""
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    with LocalCluster(f"{folder}/server", WorkerConfig(cores=2)) as cluster:
        client = cluster.client()
        check(client.wait_for_jobs([client.submit(_job(20))]), wanted=True)

        def processes(count: int) -> None:
            _wait(client, client.submit(_job(count)))

        serve({"processes": processes, "process": processes})


def _job(tasks: int) -> Job:
    job = Job()
    for _ in range(tasks):
        job.program([TRUE], stdout=None, stderr=None)
    return job


def _wait(client: Client, submitted: SubmittedJob) -> None:
    """Wait for a job; its own client looks but once a second, so we ask more often."""
    while True:
        try:
            client.forget(submitted)
        except Exception:  # noqa: BLE001 - it has but one kind of error: the job has not ended
            time.sleep(_GLANCE_S)
        else:
            return


if __name__ == "__main__":
    main()
