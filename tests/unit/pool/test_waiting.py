"""What waits in the queue, and which pools it is offered to."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.batch.model import SiteSettings
from pilotage.batch.pilot_request import PilotRequest
from pilotage.job.model import Command, JobSpec, Resources
from pilotage.match.classes import QueuedJob
from pilotage.match.negotiate import Matcher
from pilotage.match.share import Shares
from pilotage.pool.files import Pool
from pilotage.pool.observe import Waiting
from pilotage.pool.pilots import PoolPilot
from pilotage.pool.policy.model import Care
from pilotage.pool.state import PAUSED, PoolRow

NOW = 1000.0
POOLS = {
    "long": Pool(site="a", maximum=8, pilot=PilotRequest(time="10h")),
    "short": Pool(site="a", maximum=8, pilot=PilotRequest(time="1h")),
}


def offered(rows: dict[str, PoolRow], *jobs: dict[str, Any]) -> dict[str, float]:
    """Queue jobs, and say how many cores of them each pool hears of."""
    matcher = Matcher(Shares(3600.0), patience=10.0)
    for number, facts in enumerate(jobs, 1):
        spec = JobSpec(Command(("x",)), "x", resources=Resources(**facts))
        cluster = matcher.clusters.of(spec, "ann")
        matcher.add(QueuedJob(number, 0, "ann", cluster, ""), NOW)
    sites = {"a": SiteSettings(batch="local")}
    none: dict[str, list[PoolPilot]] = {name: [] for name in POOLS}
    waiting = Waiting(matcher, POOLS, sites, none, rows, NOW, lambda _: True)
    return {
        name: sum(hint.waiting for hint in hints)
        for _, names, hints in waiting.groups()
        for name in names
    }


def test_what_several_pools_could_run_is_counted_once():
    assert offered({}, {"time": 60.0}, {"time": 7200.0}) == {"short": 1, "long": 1}


@pytest.mark.parametrize(
    "row", [PoolRow("short", asked=PAUSED), PoolRow("short", care=Care(deaths=3, until=NOW + 60))]
)
def test_a_pool_that_orders_nothing_keeps_no_job_from_the_others(row):
    found = offered({"short": row}, {"time": 60.0}, {"time": 7200.0})
    assert found["long"] == 2
