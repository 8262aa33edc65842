"""What the hub measures of jobs and pilots."""

from __future__ import annotations

from pilotage.hub import metrics
from pilotage.hub.api import pools, sites
from pilotage.hub.api.overview import Whole
from pilotage.hub.metrics import Family
from pilotage.job.model import State
from pilotage.store import Db


def text(db: Db, whole: Whole, now: float) -> str:
    """Measure everything."""
    view, tally = whole.overview(db, now, now), whole.tally
    rates = {name: getattr(view.rates, name) for name in ("submitted", "started", "ended")}
    queued = view.counts.get(State.QUEUED, 0)
    return metrics.write([
        Family("pilotage_jobs", "gauge", "Jobs by state.", view.counts, "state"),
        Family("pilotage_queue_depth", "gauge", "Jobs that wait for a place.", queued),
        Family("pilotage_jobs_submitted_total", "counter", "Jobs that came.", tally.submitted),
        Family("pilotage_jobs_started_total", "counter", "Attempts that began.", tally.started),
        Family("pilotage_jobs_ended_total", "counter", "Jobs that ended.", tally.ended, "state"),
        Family("pilotage_jobs_per_second", "gauge", "Of the last minute.", rates, "step"),
        Family("pilotage_pilots", "gauge", "Pilots by state.", view.pilots, "state"),
        Family("pilotage_cpus", "gauge", "Cores that places have.", view.cpus),
        Family("pilotage_cpus_used", "gauge", "Cores in use.", view.used),
        Family("pilotage_alarms", "gauge", "What needs a person.", len(view.alarms)),
        *pools.families(db, now),
        *sites.families(db, now),
        *metrics.process(),
    ])  # fmt: skip
