"""Providers that refuse, never start anything, or kill: the others take over, nobody winds up."""

from __future__ import annotations

import collections
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pilotage.hub.project import Project
from testbed import processes
from testbed.errors import NotUp
from testbed.slurm import Slurm
from tests.rigs.cluster.batch_site import slurm_site
from tests.rigs.cluster.misbehaving.double import Misbehaving
from tests.rigs.cluster.pools import ANY, PoolPilot, PoolProject

pytestmark = pytest.mark.slow

#: Pools are tried in the order of their names where nothing else tells them apart.
BAD, GOOD = "a-bad", "b-good"
_BUSY = """
SELECT substr(facts->>'batch', 7) FROM attempt
JOIN pilot ON attempt.starter = 'pilot:' || pilot.id
WHERE attempt.state = 'running' AND facts->>'batch' GLOB 'slurm:*'
"""
#: Pilots that may wait at the bad one.
PENDING = 4


def beside_good(
    root: Path, bad: str, *, pilot: str = "cpus = 1", lease: str = "1m"
) -> PoolProject:  # fmt: skip
    """Make a project with a site that is as it should be, and one that is not."""
    farm = PoolProject(root, lease=lease)
    farm.add_site("bad", bad)
    farm.add_site("good", 'batch = "local"\n')
    farm.add_pool(BAD, "bad", 8, pilot, f"pending = {PENDING}")
    farm.add_pool(GOOD, "good", 2)
    return farm


def of(farm: PoolProject, pool: str) -> list[PoolPilot]:
    return [one for one in farm.pilots() if one.pool == pool]


def committed_once(farm: PoolProject, jobs: list[int]) -> None:
    """Require that each attempt began once and each job was done once, whoever was killed."""
    begun = [line.split()[1] for line in farm.ledger.read_text().splitlines()]
    assert len(begun) == len(set(begun)), farm.told()
    with Project(farm.root) as project:
        rows = project.db._connection.execute("SELECT job FROM journal WHERE state = 'done'")
        done = collections.Counter(int(str(row[0])) for row in rows)
    assert done == dict.fromkeys(jobs, 1), farm.told()


@contextmanager
def down(slurm: Slurm, partition: str) -> Iterator[None]:
    """Have a partition take jobs and start none."""
    slurm.run("scontrol", "update", f"partitionname={partition}", "state=down")
    try:
        yield
    finally:
        slurm.run("scontrol", "update", f"partitionname={partition}", "state=up")


def running(slurm: Slurm) -> dict[str, str]:
    """Return the jobs that have a node: as they know themselves, and one by one as commands do."""
    rows = slurm.run("squeue", "--noheader", "-r", "-t", "R", "--format=%A %i").splitlines()
    return dict(row.split() for row in rows)


def test_a_provider_that_refuses_every_submission(tmp_path: Path):
    with Misbehaving(tmp_path / "scheduler") as double:
        double.plan("sbatch", "refuse", times=100)
        farm = beside_good(tmp_path / "p", f'batch = "slurm"\npath = ["{double.bin}"]\n')
        # Nothing is done before the bad one was tried, however slow it is.
        jobs = farm.submit(30, gate=True, site="", requirements=ANY)
        with farm.up():
            farm.wait(lambda: farm.look(BAD).state in {"backs off", "paused"})
            assert "Invalid partition name" in farm.look(BAD).trouble
            assert "Invalid partition name" in farm.alarms()[f"pool {BAD}"]
            farm.gate.touch()
            farm.wait(lambda: farm.done() == len(jobs) and not farm.live())
            farm.rests()
        # What was refused is one row of orders, not one after the other without end.
        assert 3 <= len(of(farm, BAD)) <= 2 * PENDING
        assert {one.state for one in of(farm, BAD)} <= {"failed", "down"}
        assert double.accepted() == []
    farm.exactly_once(jobs)
    farm.never_too_many()


def test_a_provider_that_cannot_be_reached(tmp_path: Path):
    with Misbehaving(tmp_path / "scheduler") as double:
        double.plan("sbatch", "error", times=300)
        farm = beside_good(tmp_path / "p", f'batch = "slurm"\npath = ["{double.bin}"]\n')
        jobs = farm.submit(30, gate=True, site="", requirements=ANY)
        with farm.up():
            farm.wait(lambda: len(of(farm, BAD)) == PENDING)
            farm.wait(lambda: "Socket timed out" in of(farm, BAD)[0].reason)
            farm.gate.touch()
            farm.wait(lambda: farm.done() == len(jobs))
            # Nobody needs them any more, so they are called off before they were ever taken.
            farm.wait(lambda: not farm.live())
            farm.rests()
        assert len(of(farm, BAD)) == PENDING
        assert {one.state for one in of(farm, BAD)} == {"down"}
        assert double.accepted() == []
    farm.exactly_once(jobs)


def test_a_provider_that_never_starts_anything(tmp_path: Path, slurm: Slurm):
    farm = beside_good(tmp_path / "p", slurm_site(slurm), pilot='cpus = 1\nqueue = "long"')
    jobs = farm.submit(40, gate=True, site="", requirements=ANY)
    with down(slurm, "long"):
        with farm.up():
            farm.wait(lambda: slurm.run("squeue", "--noheader", "-r", "--partition=long"))
            farm.gate.touch()
            farm.wait(lambda: farm.done() == len(jobs) and not farm.live())
            farm.wait(lambda: not slurm.run("squeue", "--noheader", "--partition=long"))
            farm.rests()
        assert farm.most(BAD) <= PENDING
        assert len(of(farm, BAD)) <= 2 * PENDING
        assert {one.state for one in of(farm, BAD)} == {"down"}
    farm.exactly_once(jobs)
    farm.never_too_many()


def test_a_provider_that_kills_at_random(tmp_path: Path, slurm: Slurm):
    farm = beside_good(tmp_path / "p", slurm_site(slurm), lease="20s")
    # Nothing is done while somebody lives whom the killer will find.
    jobs = farm.submit(8, gate=True, site="", requirements=ANY)
    killer = Killer(slurm, farm)
    # Whoever was killed is waited for, in case that it can say how it ended.
    farm.driven = True
    with farm.up():
        backs_off = {"backs off", "paused"}
        farm.wait(lambda: killer.strikes() and farm.look(BAD).state in backs_off, passing=0.5)
        assert "died" in farm.alarms()[f"pool {BAD}"]
        farm.wait(
            lambda: killer.strikes() and not farm.live(BAD) and not running(slurm), passing=0.5
        )
        ordered = len(of(farm, BAD))
        assert 3 <= ordered <= 4 * PENDING
        farm.gate.touch()
        farm.wait(lambda: farm.done() == len(jobs) and not farm.live())
        # It backs off for longer than that takes.
        assert len(of(farm, BAD)) == ordered
    assert killer.hits[True] > 0
    committed_once(farm, jobs)
    farm.never_too_many()


class Killer:
    """Ends pilots of a cluster, the first with what it runs, others at once."""

    def __init__(self, slurm: Slurm, farm: PoolProject) -> None:
        self._slurm = slurm
        self._farm = farm
        self._dice = random.Random(7)
        self._fates: dict[str, bool] = {}
        self._struck: set[str] = set()
        #: How many were ended at once, and while they worked.
        self.hits = collections.Counter[bool]()

    def strikes(self) -> bool:
        """Look around once."""
        works = self._busy()
        for one, shown in running(self._slurm).items():
            # Until one has died at work, all others live.
            first = not self.hits[True]
            late = first or self._fates.setdefault(one, self._dice.random() < 0.7)
            if one not in self._struck and (not late or one in works) and self._strike(one, shown):
                self._struck.add(one)
                self.hits[late] += 1
        return True

    def _strike(self, one: str, shown: str) -> bool:
        """End one; say whether it was there, since a job may have a node before it has begun."""
        if self._dice.random() < 0.5:
            # The pool may have called it off meanwhile.
            with suppress(NotUp):
                self._slurm.run("scancel", shown)
            return True
        # As when a node is gone: nobody says good-bye.
        there = processes.marked("SLURM_JOB_ID", one)
        processes.end(there)
        return bool(there)

    def _busy(self) -> set[str]:
        """Name the batch jobs of pilots that run something."""
        with Project(self._farm.root) as project:
            return {str(row[0]) for row in project.db._connection.execute(_BUSY)}


def test_one_that_an_administrator_or_its_time_ends_is_replaced(tmp_path: Path, slurm: Slurm):
    farm = PoolProject(tmp_path / "p")
    farm.add_site("bad", slurm_site(slurm))
    farm.add_pool(BAD, "bad", 2)
    jobs = farm.submit(2, gate=True, site="", requirements=ANY)
    with farm.up():
        farm.wait(lambda: len(farm.ran()) == 2)
        there = running(slurm)
        first, second = there
        slurm.run("scancel", there[first])
        slurm.run("scontrol", "update", f"jobid={there[second]}", "endtime=now+10")
        farm.wait(lambda: not {first, second} & running(slurm).keys())
        # What they ran is begun anew by those that came in their place.
        farm.wait(lambda: farm.ran() == dict.fromkeys(jobs, 2))
        assert farm.look(BAD).state == "controlled", farm.look(BAD)
        farm.gate.touch()
        farm.wait(lambda: farm.done() == len(jobs) and not farm.live() and not running(slurm))
    committed_once(farm, jobs)
    farm.never_too_many()
    ended = {one.id: one.state for one in slurm.ended() if one.id in {first, second}}
    assert ended == {first: "CANCELLED", second: "TIMEOUT"}
