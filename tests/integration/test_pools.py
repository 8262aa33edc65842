"""Pools at real batch systems: from nothing to the limit and back, whoever is killed on the way."""

from __future__ import annotations

import collections
import signal
from pathlib import Path

import pytest

from pilotage.hub.project import Project
from pilotage.job.model import State
from pilotage.pool import service, view
from testbed.ports import free_port
from testbed.slurm import Slurm
from tests.rigs.cluster.batch_site import PATIENCE, SITE, SiteProject, on_slurm

POOL = "burst"
#: Quick, so that a test sees it grow and shrink.
QUICK = """
interval = "0.5s"

[pilot]
cpus = 1

[control]
patience = "0.5s"
haste = "0.5s"
rest = "1s"
ski = 0.0
"""
_OVER = {"down", "failed", "lost"}


class Watched:
    """A farm with a pool, and what is to be true of it all the time."""

    def __init__(self, farm: SiteProject, *, maximum: int, more: str = "") -> None:
        self.farm = farm
        self.maximum = maximum
        self.most = 0
        # A port of its own: pilots would look for their hub where another test's may be by then.
        (farm.root / "pilotage.toml").write_text(
            f'[hub]\ntls = "on"\nport = {free_port()}\n[pilots]\nsandbox = "none"\n'
            'heartbeat = "0.5s"\nlease = "1m"\n'
        )
        (farm.root / "pools").mkdir()
        self.write(f"maximum = {maximum}\n{more}")

    def write(self, text: str) -> None:
        file = self.farm.root / "pools" / f"{POOL}.toml"
        file.write_text(f'site = "{SITE}"\n{text}{QUICK}')

    def submit(self, count: int, seconds: float) -> list[int]:
        asked, more = f'pool == "{POOL}"', self.farm.unhurried(seconds)
        return self.farm.submit(count, more=more, site="", requirements=asked)

    def states(self) -> collections.Counter[str]:
        """Count pilots of the pool by state; there are never more than the limit."""
        with Project(self.farm.root) as project:
            rows = project.db.rows("pilot_list", states="[]", site=SITE, most=10_000)
        found = collections.Counter(row[4] for row in rows)
        live = sum(count for state, count in found.items() if state not in _OVER)
        assert live <= self.maximum, found
        self.most = max(self.most, live)
        return found

    def live(self) -> int:
        return sum(count for state, count in self.states().items() if state not in _OVER)

    def look(self) -> view.PoolView:
        with Project(self.farm.root) as project:
            return view.pool(project.db, project.root, POOL, project.clock.now())

    def looks(self, times: int = 4) -> None:
        """Wait until the pool was looked at some times more."""
        seen: set[float | None] = set()

        def often() -> bool:
            seen.add(self.look().looked)
            return len(seen) > times

        self.farm.wait(often)

    def samples(self) -> list[view.PoolSample]:
        with Project(self.farm.root) as project:
            return list(view.samples(project.db, 0.0, POOL))

    def over(self, jobs: list[int]) -> bool:
        """Say whether all is done and everybody has left."""
        live = self.live()
        return not live and all(self.farm.job(one).state is State.DONE for one in jobs)

    def none_twice(self) -> None:
        """Require that each pilot was submitted once, and none is forgotten."""
        with Project(self.farm.root) as project:
            outs = project.db._connection.execute(
                "SELECT pilot, count(*) FROM submitted WHERE pilot IS NOT NULL GROUP BY pilot"
            ).fetchall()
            hosts = project.db._connection.execute(
                "SELECT facts->>'batch' FROM pilot WHERE facts <> '{}' AND id > 0"
            ).fetchall()
        assert [row for row in outs if row[1] != 1] == []
        batch = [row[0] for row in hosts if row[0]]
        assert len(batch) == len(set(batch))


@pytest.mark.slow
def test_a_pool_grows_from_nothing_works_and_shrinks_to_nothing_though_its_hub_is_killed(
    tmp_path: Path, slurm: Slurm
):
    farm = on_slurm(tmp_path / "p", slurm)
    pool = Watched(farm, maximum=3)
    jobs = pool.submit(60, 0.5)
    try:
        hub = farm.start(crash="pool.acted:2")
        assert hub.wait(timeout=PATIENCE) == -signal.SIGKILL, farm.told()
        farm.start()
        farm.wait(lambda: pool.states()["available"])
        farm.kill()
        farm.start()
        farm.wait(lambda: len(farm.ran()) > 10 and pool.live() > 1)
        farm.kill()
        farm.start()
        farm.wait(lambda: pool.states() and pool.most == 3)
        farm.haste.touch()
        farm.wait(lambda: pool.over(jobs))
        farm.wait(lambda: pool.samples()[-1].supply == 0)
    finally:
        farm.kill()
    assert pool.most == 3
    farm.exactly_once(jobs)
    pool.none_twice()
    farm.wait(lambda: not slurm.run("squeue", "--noheader").strip())
    assert max(one.supply for one in pool.samples()) >= 1
    assert pool.samples()[-1].demand == 0


@pytest.mark.slow
@pytest.mark.crash_points
@pytest.mark.parametrize("point", [*service.POINTS, "pool.acted:3"])
def test_nobody_is_forgotten_or_doubled_wherever_the_hub_dies(tmp_path: Path, point: str):
    farm = SiteProject(tmp_path / "p", 'batch = "local"\n')
    pool = Watched(farm, maximum=2)
    jobs = pool.submit(6, 0.2)
    try:
        hub = farm.start(crash=point)
        assert hub.wait(timeout=PATIENCE) == -signal.SIGKILL, farm.told()
        pool.live()
        farm.start()
        farm.wait(lambda: pool.over(jobs))
    finally:
        farm.kill()
    farm.exactly_once(jobs)
    pool.none_twice()


@pytest.mark.slow
def test_a_site_that_does_not_answer_gets_no_more_than_may_wait(tmp_path: Path):
    farm = SiteProject(tmp_path / "p", 'batch = "local"\npython = "/bin/false"\n')
    pool = Watched(farm, maximum=20, more="pending = 4\n")
    pool.submit(40, 0.1)
    with farm.up():
        farm.wait(lambda: pool.live() == 4)
        pool.looks()
        assert pool.states() == {"requested": 4}


@pytest.mark.slow
def test_a_pool_whose_pilots_die_backs_off_and_says_why(tmp_path: Path):
    farm = SiteProject(tmp_path / "p", 'batch = "local"\n')
    pool = Watched(farm, maximum=4, more="pending = 4\n")
    check = farm.root / "checks" / "broken"
    check.parent.mkdir()
    check.write_text("#!/bin/sh\necho the disk is full >&2\nexit 1\n")
    check.chmod(0o755)
    pool.submit(40, 0.1)
    with farm.up():
        farm.wait(lambda: pool.look().state == "backs off")
        assert "broken" in pool.look().trouble
        farm.wait(lambda: not pool.live())
        dead = pool.states()["failed"]
        pool.looks()
        # Two may have been replaced before the third, if they died one after the other.
        assert pool.states()["failed"] == dead <= 4 + 2


@pytest.mark.slow
def test_a_pool_asks_before_it_costs_too_much_and_goes_when_its_file_does(tmp_path: Path):
    farm = SiteProject(tmp_path / "p", 'batch = "local"\n')
    pool = Watched(farm, maximum=2, more="ask_above = 1\n")
    pool.submit(400, 0.2)
    with farm.up():
        farm.wait(lambda: "--allow" in pool.look().trouble)
        assert pool.live() == 1
        with Project(farm.root) as project, project.db.transaction():
            given = view.changed(project.db, POOL)
            assert given.ask_above is None
            view.change(
                project.db, project.root, POOL, type(given)(ask_above=0)
            )  # fmt: skip
        farm.wait(lambda: pool.live() == 2)
        (farm.root / "pools" / f"{POOL}.toml").unlink()
        farm.wait(lambda: not pool.live())
