"""Metrics in the text format of Prometheus."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Family(msgspec.Struct, frozen=True):
    """Values with one name and meaning."""

    name: str
    kind: Literal["gauge", "counter"]
    #: For people.
    words: str
    #: One number, or several by a label.
    value: float | Mapping[str, float]
    #: What the label is called; its values are words of ours that need no quoting.
    label: str = ""


def write(families: Iterable[Family]) -> str:
    """Write values for Prometheus."""
    return "".join(_write(one) for one in families)


def _write(one: Family) -> str:
    head = f"# HELP {one.name} {one.words}\n# TYPE {one.name} {one.kind}\n"
    if isinstance(one.value, Mapping):
        items = one.value.items()
        marks = [f'{{{one.label}="{word}"}} {value:.15g}' for word, value in items]
    else:
        marks = [f" {one.value:.15g}"]
    return head + "".join(f"{one.name}{mark}\n" for mark in marks)


def process() -> list[Family]:
    """Return the metrics of this process."""
    used = os.times()
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    handles = len(os.listdir("/proc/self/fd"))
    seconds = used.user + used.system
    return [
        Family("process_resident_memory_bytes", "gauge", "Memory.", pages * _PAGE),
        Family("process_cpu_seconds_total", "counter", "Processor time.", seconds),
        Family("process_open_fds", "gauge", "Open files and connections.", handles),
    ]
