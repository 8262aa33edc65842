"""Facts of this node: limits of control groups, GPUs, cores, memory and disk."""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import batch

#: Limits beyond this are how version 1 says that there is none.
_NO_LIMIT = 1 << 60


def cpus(root: str = "/") -> float | None:
    """Return how many cores' worth of time our groups may use."""
    quotas = [_quota2(text) for text in _values(root, "", "cpu.max")]
    for folder in _folders(root, "cpu"):
        quota, period = _read(folder, "cpu.cfs_quota_us"), _read(folder, "cpu.cfs_period_us")
        quotas.append(_ratio(quota, period))
    return min((quota for quota in quotas if quota is not None), default=None)


def memory(root: str = "/") -> int | None:
    """Return how many bytes our groups may use."""
    texts = [*_values(root, "", "memory.max"), *_values(root, "memory", "memory.limit_in_bytes")]
    limits = [int(text) for text in texts if text.isdigit()]
    return min((limit for limit in limits if limit < _NO_LIMIT), default=None)


def _quota2(text: str) -> float | None:
    quota, _, period = text.partition(" ")
    return _ratio(quota, period)


def _ratio(quota: str, period: str) -> float | None:
    if quota.isdigit() and period.isdigit() and int(quota) and int(period):
        return int(quota) / int(period)
    return None


def _values(root: str, controller: str, name: str) -> Iterator[str]:
    for folder in _folders(root, controller):
        if text := _read(folder, name):
            yield text


def _folders(root: str, controller: str) -> Iterator[str]:
    """List the folders of our group and of those above it, also if only some can be seen."""
    for line in _read(os.path.join(root, "proc/self"), "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        for mount in _mounts(root, controllers):
            inner = path.strip("/")
            while True:
                yield os.path.join(mount, inner) if inner else mount
                if not inner:
                    break
                inner = os.path.dirname(inner)


def _mounts(root: str, controllers: str) -> list[str]:
    top = os.path.join(root, "sys/fs/cgroup")
    if not controllers:
        return [top, os.path.join(top, "unified")]
    return [os.path.join(top, name) for name in {controllers, *controllers.split(",")}]


def _read(folder: str, name: str) -> str:
    try:
        with open(os.path.join(folder, name), encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


_MEBI = 1 << 20
_ASK_SECONDS = 20.0
_QUERY = (
    "nvidia-smi",
    "--query-gpu=index,uuid,name,memory.total",
    "--format=csv,noheader,nounits",
)


def found(env: Mapping[str, str], root: str = "/", query: Sequence[str] = _QUERY) -> list[Any]:
    """List the GPUs that this process may see, with their memory where the driver tells it."""
    cards = _asked(query) or _devices(root)
    seen = env.get("CUDA_VISIBLE_DEVICES")
    if seen is None:
        chosen = cards
    else:
        wanted = [word.strip() for word in seen.split(",") if word.strip()]
        chosen = [card for word in wanted for card in cards if _is(card, word)]
    return [
        {"name": card["name"], "memory": card["memory"], "device": card["uuid"] or card["index"]}
        for card in chosen
    ]


def _asked(query: Sequence[str]) -> list[dict[str, Any]]:
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=_ASK_SECONDS, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    return [card for line in answer.stdout.splitlines() if (card := _parse(line))]


def _parse(line: str) -> dict[str, Any] | None:
    words = [word.strip() for word in line.split(",")]
    if len(words) != 4:
        return None
    index, uuid, name, memory = words
    # Cards whose memory is that of the machine say `[N/A]`.
    size = int(memory) * _MEBI if memory.isdigit() else 0
    return {"index": index, "uuid": uuid, "name": name, "memory": size}


def _devices(root: str) -> list[dict[str, Any]]:
    try:
        names = os.listdir(os.path.join(root, "dev"))
    except OSError:
        names = []
    numbers = sorted(int(name[6:]) for name in names if re.fullmatch(r"nvidia\d+", name))
    return [{"index": str(n), "uuid": "", "name": "", "memory": 0} for n in numbers]


def _is(card: dict[str, Any], word: str) -> bool:
    return word == card["index"] or bool(card["uuid"] and card["uuid"].startswith(word))


_KIBI = 1024


@dataclass(frozen=True)
class Given:
    """Values from the command line, which override those found."""

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
        "gpus": found(env, root),
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
    bounds += [bound for bound in (cpus(root), batch.cpus(env)) if bound is not None]
    return max(1, int(min(bounds)))


def count_memory(env: Mapping[str, str], cpus: int, root: str = "/") -> int:
    """Count the bytes of memory that machine, control groups and the batch system leave us."""
    bounds = [_total(root), memory(root), batch.memory(env, cpus)]
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
