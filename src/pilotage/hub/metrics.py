"""What is counted and measured, in the text format of Prometheus."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from pilotage.hub.api.overview import Whole
from pilotage.hub.api.tell import Overview
from pilotage.job.model import State
from pilotage.store import Db

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: The label that a family of values differs by.
_By = Mapping[str, float]


def text(db: Db, whole: Whole, now: float) -> str:
    """Measure everything."""
    view = whole.overview(db, now, now)
    tally = whole.tally
    parts = [
        _family("pilotage_jobs", "gauge", "Jobs by state.", "state", view.counts),
        _one("pilotage_queue_depth", "gauge", "Jobs that wait for a place.", _queued(view)),
        _one("pilotage_jobs_submitted_total", "counter", "Jobs that came.", tally.submitted),
        _one("pilotage_jobs_started_total", "counter", "Attempts that began.", tally.started),
        _family("pilotage_jobs_ended_total", "counter", "Jobs that ended.", "state", tally.ended),
        _family("pilotage_jobs_per_second", "gauge", "Of the last minute.", "step", _rates(view)),
        _family("pilotage_pilots", "gauge", "Pilots by state.", "state", view.pilots),
        _one("pilotage_cpus", "gauge", "Cores that places have.", view.cpus),
        _one("pilotage_cpus_used", "gauge", "Cores in use.", view.used),
        _one("pilotage_alarms", "gauge", "What needs a person.", len(view.alarms)),
        *_process(),
    ]
    return "".join(parts)


def _queued(view: Overview) -> int:
    return view.counts.get(State.QUEUED, 0)


def _rates(view: Overview) -> _By:
    return {name: getattr(view.rates, name) for name in ("submitted", "started", "ended")}


def _process() -> Iterable[str]:
    used = os.times()
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    handles = len(os.listdir("/proc/self/fd"))
    yield _one("process_resident_memory_bytes", "gauge", "Memory.", pages * _PAGE)
    yield _one("process_cpu_seconds_total", "counter", "Processor time.", used.user + used.system)
    yield _one("process_open_fds", "gauge", "Open files and connections.", handles)


def _one(name: str, kind: str, words: str, value: float) -> str:
    return f"# HELP {name} {words}\n# TYPE {name} {kind}\n{name} {value:.15g}\n"


def _family(name: str, kind: str, words: str, label: str, values: _By) -> str:
    # Labels are states and steps: words of ours that need no quoting.
    lines = "".join(f'{name}{{{label}="{key}"}} {value:.15g}\n' for key, value in values.items())
    return f"# HELP {name} {words}\n# TYPE {name} {kind}\n{lines}"
