"""Payloads in a sandbox; without one, none of its code is loaded."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Iterator
from typing import Any

#: The kind whose own program measures what a payload writes.
_MEASURES = "user"


def kind(order: dict[str, Any]) -> str:
    """Return the kind of sandbox that an order asks for; empty means none."""
    named: str = (order.get("sandbox") or {}).get("kind", "none")
    return "" if named == "none" else named


@functools.cache
def sandbox() -> Any:  # noqa: ANN401 - a module that is beside us, whatever is above
    """Load the package beside this one."""
    above = __name__.rpartition(".starter.")[0]
    return importlib.import_module(f"{above}.sandbox" if above else "sandbox")


@functools.cache
def disk() -> Any:  # noqa: ANN401 - as above
    """Load what measures directories."""
    return importlib.import_module(f"{sandbox().__name__}.disk")


def gauge(order: dict[str, Any], place: bytes, pid: int) -> Any:  # noqa: ANN401 - as above
    """Make what measures the directory of a payload, if that is limited."""
    limit = order.get("limits", {}).get("disk")
    return None if limit is None or kind(order) == _MEASURES else disk().Gauge(place, pid, limit)


@contextlib.contextmanager
def handed(data: bytes) -> Iterator[list[Any]]:
    """Put data where a process finds it when it begins."""
    fd = os.memfd_create("handed")
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(fd, 0, os.SEEK_SET)
        yield [(os.POSIX_SPAWN_DUP2, fd, 3)]
    finally:
        os.close(fd)
