"""Jobs: each has one pod, which is run once, when there is room for it."""

from __future__ import annotations

import threading
import time
from typing import Any

from testbed.kube import pods
from testbed.kube.pods import Pod

_LOOK_S = 0.05


class Cluster:
    """All jobs, and a thread that looks after them."""

    def __init__(self, cores: float) -> None:
        """Begin with nothing."""
        self._cores = cores
        self._lock = threading.Lock()
        self._jobs: dict[str, dict[str, Any]] = {}
        self._pods: dict[str, Pod] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End all pods."""
        self._over.set()
        self._thread.join()
        for pod in self._pods.values():
            if pod.runs:
                pod.kill("Terminated")

    def create(self, job: dict[str, Any]) -> dict[str, Any] | None:
        """Take a job; nothing if there is one of that name."""
        name = job["metadata"]["name"]
        with self._lock:
            if name in self._jobs:
                return None
            job["metadata"] |= {"namespace": "default", "creationTimestamp": pods.now()}
            job |= {"status": {}, "begun": time.time()}
            self._jobs[name] = job
            return _shown(job)

    def find(self, name: str) -> dict[str, Any] | None:
        """Return a job."""
        with self._lock:
            return _shown(self._jobs[name]) if name in self._jobs else None

    def patch(self, name: str, changes: dict[str, Any]) -> dict[str, Any] | None:
        """Merge changes into a job."""
        with self._lock:
            if name not in self._jobs:
                return None
            _merge(self._jobs[name], changes)
            return _shown(self._jobs[name])

    def list(self, kind: str, labels: dict[str, str]) -> list[dict[str, Any]]:
        """Return the jobs or the pods that have labels."""
        with self._lock:
            found = (
                [_shown(job) for job in self._jobs.values()]
                if kind == "jobs"
                else [pod.show() for pod in self._pods.values()]
            )
        return [one for one in found if labels.items() <= one["metadata"]["labels"].items()]

    def _run(self) -> None:
        while not self._over.wait(_LOOK_S):
            with self._lock:
                for name, job in self._jobs.items():
                    if not job["status"].get("conditions") and not job["spec"].get("suspend"):
                        self._look(name, job)

    def _look(self, name: str, job: dict[str, Any]) -> None:
        pod = self._pods.setdefault(name, Pod(job))
        pod.look()
        if pod.code is not None:
            _end(job, "Complete" if pod.code == 0 else "Failed", "BackoffLimitExceeded")
        elif pods.late(job):
            pod.kill("")
            _end(job, "Failed", "DeadlineExceeded")
        elif not pod.runs and not pod.stuck:
            used = sum(one.cores for one in self._pods.values() if one.runs)
            if used + pod.cores <= self._cores:
                pod.start()


def _end(job: dict[str, Any], kind: str, reason: str) -> None:
    condition = {"type": kind, "status": "True"}
    if kind == "Failed":
        condition["reason"] = reason
    else:
        job["status"]["completionTime"] = pods.now()
    job["status"]["conditions"] = [condition]


def _shown(job: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in job.items() if key != "begun"}


def _merge(into: dict[str, Any], changes: dict[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
