"""Pods as processes of this machine: one container each, run once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_KILLED = 137
_PAGE = os.sysconf("SC_PAGE_SIZE")


def now() -> str:
    """Return the time as Kubernetes writes it: whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Pod:
    """One pod of a job."""

    def __init__(self, job: dict[str, Any]) -> None:
        """Wait for room."""
        template = job["spec"]["template"]
        self._container = template["spec"]["containers"][0]
        self._made = now()
        self._job = job["metadata"]["name"]
        self._labels = template["metadata"]["labels"]
        self._process: subprocess.Popen[bytes] | None = None
        self._started = self._ended = ""
        self.code: int | None = None
        #: Why it ended, if not by itself.
        self.reason = ""

    @property
    def cores(self) -> float:
        """What it asks for."""
        return float(self._amounts.get("cpu", 0))

    @property
    def runs(self) -> bool:
        """Whether it has been started and is not over."""
        return self._process is not None and self.code is None

    @property
    def stuck(self) -> bool:
        """Whether its image cannot be had, so that it never starts."""
        return str(self._container["image"]).startswith("missing")

    @property
    def _amounts(self) -> dict[str, str]:
        found: dict[str, str] = self._container.get("resources", {}).get("limits", {})
        return found

    def start(self) -> None:
        """Run its command in a process group of its own."""
        self._started = now()
        self._process = subprocess.Popen(
            self._container["command"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def look(self) -> None:
        """See whether it is over, or has more memory than it may."""
        if self._process is None or self.code is not None:
            return
        if (code := self._process.poll()) is not None:
            self.end(128 - code if code < 0 else code)
        elif _resident(self._process.pid) > float(self._amounts.get("memory", "inf")):
            self.kill("OOMKilled")

    def kill(self, reason: str) -> None:
        """End all of it."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self.end(_KILLED)
        self.reason = reason

    def end(self, code: int) -> None:
        """Write down how it ended."""
        self.code, self._ended = code, now()

    def show(self) -> dict[str, Any]:
        """Say it as the API does."""
        status: dict[str, Any] = {"phase": "Pending", "conditions": []}
        if self.stuck:
            waits = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
            status["containerStatuses"] = [{"name": "pilot", "state": {"waiting": waits}}]
        elif self.code is not None:
            over = {
                "exitCode": self.code, "startedAt": self._started, "finishedAt": self._ended,
                "reason": self.reason or ("Completed" if self.code == 0 else "Error"),
            }  # fmt: skip
            status["phase"] = "Succeeded" if self.code == 0 else "Failed"
            status["containerStatuses"] = [{"name": "pilot", "state": {"terminated": over}}]
        elif self._process is not None:
            status["phase"] = "Running"
            state = {"running": {"startedAt": self._started}}
            status["containerStatuses"] = [{"name": "pilot", "state": state}]
        else:
            full = {
                "reason": "Unschedulable",
                "message": "0/1 nodes are available: Insufficient cpu.",
            }
            status["conditions"] = [{"type": "PodScheduled", "status": "False", **full}]
        return {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": f"{self._job}-0", "namespace": "default", "labels": self._labels,
                "creationTimestamp": self._made,
            },
            "spec": {"nodeName": "box"} if self._process else {}, "status": status,
        }  # fmt: skip


def deadline(job: dict[str, Any]) -> float:
    """Return when a job is to be ended."""
    seconds = job["spec"].get("activeDeadlineSeconds")
    return float("inf") if seconds is None else float(job["begun"]) + seconds


def late(job: dict[str, Any]) -> bool:
    """Say whether the time of a job is over."""
    return time.time() > deadline(job)


def _resident(group: int) -> int:
    """Return the memory of a process group, in bytes."""
    total = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                after = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(after[2]) == group:
                    total += int(after[21]) * _PAGE
    return total
