"""What control groups allow, of version 1 and 2."""

from __future__ import annotations

import os
from collections.abc import Iterator

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
