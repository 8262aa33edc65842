"""Pilots that end by their lifetime, and pilots of several shapes at one site."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.hub.project import Project
from pilotage.job.model import Resources, State
from pilotage.pool import state
from tests.rigs.cluster.pools import PoolProject


@pytest.mark.slow
def test_pilots_that_end_by_their_lifetime_are_replaced_and_have_not_died(tmp_path: Path):
    farm = PoolProject(tmp_path / "p")
    farm.add_site("here", 'batch = "local"\n')
    farm.add_pool("short", "here", 2, pilot='cpus = 1\ntime = "24s"')
    jobs = farm.submit(400, more="sleep 0.3", site="", requirements='pool == "short"')
    with farm.up():
        farm.wait(lambda: farm.count()["down"] >= 3 and farm.count()["available"])
        ended = [one for one in farm.pilots() if one.state == "down"]
        assert {one.reason for one in ended} == {"its lifetime ends"}
        assert farm.count().keys() <= {"down", "available", "draining", "booting", "requested",
                                       "submitted"}  # fmt: skip
        with Project(farm.root) as project:
            row = state.rows(project.db)["short"]
        assert row.care.deaths == 0
        assert row.seen is not None
        assert not row.seen.sight.lasting
        assert row.seen.sight.ready == len(row.seen.sight.leaving)
    # They took no job that they could not end.
    assert {farm.job(one).attempt for one in jobs} <= {0, 1}


@pytest.mark.slow
def test_small_and_large_pilots_share_the_quota_of_their_site(tmp_path: Path):
    farm = PoolProject(tmp_path / "p")
    farm.add_site("here", 'batch = "local"\nquota = 3\n')
    farm.add_pool("small", "here", 8)
    farm.add_pool("large", "here", 8, pilot='cpus = 2\nmemory = "2G"')
    jobs = farm.submit(12, more="sleep 0.3", site="", requirements='pool == "small"')
    jobs += farm.submit(
        6, more="sleep 0.3", site="", requirements='pool == "large"',
        resources=Resources(cpus=2, memory=1 << 30),
    )  # fmt: skip
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, sum(one.cores for one in farm.pilots() if one.live))
        return all(one.state is State.DONE for one in farm.jobs().values())

    with farm.up():
        farm.wait(done)
    assert most == 3
    assert {one.pool for one in farm.pilots()} == {"small", "large"}
    farm.exactly_once(jobs)
