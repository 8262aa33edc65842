"""All metrics, in the text format of Prometheus."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from pilotage.edge.view import EdgeSitesView
from pilotage.job.model import State
from pilotage.pool.view import PoolSample

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


class Figures(msgspec.Struct, frozen=True):
    """Jobs, pilots and cores of the hub at one moment."""

    #: Jobs by state.
    counts: Mapping[str, int]
    #: Since the hub began to count: jobs that came, attempts that began, and ends by state.
    submitted: int
    started: int
    ended: Mapping[str, int]
    #: Jobs submitted, started and ended in a second.
    rates: Mapping[str, float]
    #: Pilots by state.
    pilots: Mapping[str, int]
    #: Cores, and how many of them are in use.
    cpus: int
    used: int
    alarms: int


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


def render(
    figures: Figures, samples: Mapping[str, PoolSample], heard: EdgeSitesView, now: float
) -> str:
    """Return all metrics as text."""
    queued = figures.counts.get(State.QUEUED, 0)
    return write([
        Family("pilotage_jobs", "gauge", "Jobs by state.", figures.counts, "state"),
        Family("pilotage_queue_depth", "gauge", "Jobs that wait for a place.", queued),
        Family("pilotage_jobs_submitted_total", "counter", "Jobs that came.", figures.submitted),
        Family("pilotage_jobs_started_total", "counter", "Attempts that began.", figures.started),
        Family("pilotage_jobs_ended_total", "counter", "Jobs that ended.", figures.ended, "state"),
        Family("pilotage_jobs_per_second", "gauge", "Of the last minute.", figures.rates, "step"),
        Family("pilotage_pilots", "gauge", "Pilots by state.", figures.pilots, "state"),
        Family("pilotage_cpus", "gauge", "Cores that places have.", figures.cpus),
        Family("pilotage_cpus_used", "gauge", "Cores in use.", figures.used),
        Family("pilotage_alarms", "gauge", "What needs a person.", figures.alarms),
        *_pools(samples),
        *_sites(heard, now),
        *process(),
    ])  # fmt: skip


def _pools(samples: Mapping[str, PoolSample]) -> list[Family]:
    """Return the metrics of pools."""
    words = {
        "supply": "Cores that pools have.",
        "demand": "Cores that pools shall have.",
        "utilisation": "How well the pilots of pools are used, from 0 to 1.",
        "allocation": "How much of the pilots of pools is taken, from 0 to 1.",
        "queued": "Cores of pilots that are on their way.",
        "waiting": "Cores of queued jobs that pools could run.",
    }
    found = []
    for key, about in words.items():
        values = {name: getattr(one, key) for name, one in samples.items()}
        known = {name: value for name, value in values.items() if value is not None}
        if known:
            found.append(Family(f"pilotage_pool_{key}", "gauge", about, known, "pool"))
    return found


def _sites(heard: EdgeSitesView, now: float) -> list[Family]:
    """Return the metrics of edge sites."""
    if not heard.edges:
        return []
    sites = {one.name: one for one in heard.edges}
    up = {name: float(one.state in ("well", "draining")) for name, one in sites.items()}
    quiet = {name: now - one.heard for name, one in sites.items()}
    jobs = {name: one.live for name, one in sites.items()}
    outbox = {name: one.outbox for name, one in sites.items()}
    disk = {name: one.disk_free for name, one in sites.items()}
    days = {
        name: one.certificate_days
        for name, one in sites.items()
        if one.certificate_days is not None
    }
    listens = float(not heard.broker.trouble)
    return [
        Family("pilotage_broker_up", "gauge", "Whether the broker is listened to.", listens),
        Family("pilotage_edge_up", "gauge", "Whether a site is well or drains.", up, "site"),
        Family(
            "pilotage_edge_quiet_seconds", "gauge", "Since the last heartbeat.", quiet, "site"
        ),
        Family("pilotage_edge_jobs", "gauge", "Jobs there that have not ended.", jobs, "site"),
        Family("pilotage_edge_outbox", "gauge", "Status messages to be sent.", outbox, "site"),
        Family("pilotage_edge_disk_free_bytes", "gauge", "Room for jobs there.", disk, "site"),
        Family("pilotage_edge_certificate_days", "gauge", "Until it ends.", days, "site"),
    ]  # fmt: skip
