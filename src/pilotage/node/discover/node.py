"""All facts of this node in one."""

from __future__ import annotations

import os
import platform
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import batch, cgroup, gpus

_KIBI = 1024


@dataclass(frozen=True)
class Given:
    """What the command line says, which goes before what is found."""

    cpus: int | None = None
    memory: int | None = None
    #: Seconds that the pilot may live from now on.
    lifetime: float | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)


def facts(work: str, given: Given, env: Mapping[str, str], root: str = "/") -> dict[str, Any]:
    """Describe this node for the hub."""
    cpus = given.cpus or count_cpus(env, root)
    disk = os.statvfs(work)
    return {
        "host": socket.gethostname(),
        "work": work,
        "cpus": cpus,
        "memory": given.memory or count_memory(env, cpus, root),
        "disk": disk.f_bavail * disk.f_frsize,
        "gpus": gpus.found(env, root),
        "os": platform.system().lower(),
        "arch": platform.machine(),
        "release": release(root),
        "python": sys.executable,
        "python_version": platform.python_version(),
        "lifetime": lifetime(given, env),
        "batch": batch.job(env),
        "attributes": {"kernel": platform.release(), **given.attributes},
    }


def count_cpus(env: Mapping[str, str], root: str = "/") -> int:
    """Count the cores that affinity, control groups and the batch system all leave us."""
    bounds: list[float] = [len(os.sched_getaffinity(0))]
    bounds += [bound for bound in (cgroup.cpus(root), batch.cpus(env)) if bound is not None]
    return max(1, int(min(bounds)))


def count_memory(env: Mapping[str, str], cpus: int, root: str = "/") -> int:
    """Count the bytes of memory that machine, control groups and the batch system leave us."""
    bounds = [_total(root), cgroup.memory(root), batch.memory(env, cpus)]
    return min((bound for bound in bounds if bound), default=0)


def lifetime(given: Given, env: Mapping[str, str]) -> float | None:
    """Return the seconds until the node is taken away, if anybody says."""
    known = [given.lifetime, batch.lifetime(env, time.time())]
    return min((seconds for seconds in known if seconds is not None), default=None)


def release(root: str = "/") -> str:
    """Name the distribution, such as `debian-12`."""
    found = {}
    for name in ("etc/os-release", "usr/lib/os-release"):
        try:
            with open(os.path.join(root, name), encoding="utf-8", errors="replace") as file:
                pairs = [line.strip().partition("=") for line in file]
        except OSError:
            continue
        found = {key: value.strip("\"'") for key, _, value in pairs}
        break
    return "-".join(word for word in (found.get("ID"), found.get("VERSION_ID")) if word)


def _total(root: str) -> int | None:
    try:
        with open(os.path.join(root, "proc/meminfo"), encoding="ascii") as file:
            for line in file:
                if line.startswith("MemTotal:"):
                    return int(line.split()[1]) * _KIBI
    except OSError:
        pass
    return None
