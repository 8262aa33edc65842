"""A project with several sites, each with pools, and what batch systems themselves saw of it."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pilotage.batch.pilot_request import PilotRequest
from pilotage.hub.project import Project
from pilotage.pool import view
from pilotage.pool.view import Account, accounts
from pilotage.store import Db
from testbed.condor import Condor
from testbed.ports import free_port
from testbed.slurm import Slurm
from testbed.user import User
from tests.rigs.cluster.batch_site import SITE, SiteProject

#: A port of its own: pilots would look for their hub where another test's may be by then.
_SETTINGS = """
[hub]
tls = "on"
port = {port}
[pilots]
sandbox = "none"
heartbeat = "0.5s"
idle = "1m"
lease = "{lease}"
"""
#: Quick, so that a test sees pools grow and shrink.
_QUICK = """
[control]
patience = "0.5s"
haste = "0.5s"
rest = "1s"
ski = 0.0
"""
#: Jobs for pilots of any pool, and not for the hub's own machine.
ANY = 'pool != ""'
OVER = ("down", "failed", "lost")
_PILOTS = """
SELECT id, pool, site, state, reason, wish, wanted,
    CASE WHEN facts = '{}' THEN 0 ELSE enrolled END, ended
FROM pilot WHERE pool <> '' AND id > 0 ORDER BY id
"""
_SUBMITTED = """
SELECT key, place, pilot FROM submission JOIN submitted ON submission.id = submission
WHERE pilot IS NOT NULL
"""


class PoolPilot(NamedTuple):
    """A pilot of a pool, as the store has it."""

    id: int
    pool: str
    site: str
    state: str
    reason: str
    cores: int
    #: When it was asked for, came and ended; 0 if it never came, nothing while it has not ended.
    wanted: float
    came: float
    ended: float | None

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.state not in OVER


class Ran(NamedTuple):
    """A batch job that had a node."""

    key: str
    place: int


class PoolProject(SiteProject):
    """A farm with more sites than one, and pools."""

    def __init__(
        self, root: Path, *, place: Path | None = None, user: User | None = None, lease: str = "1m"
    ) -> None:
        super().__init__(root, 'batch = "local"\n', place=place, user=user)
        (root / "sites" / f"{SITE}.toml").unlink()
        (root / "pools").mkdir()
        (root / "pilotage.toml").write_text(_SETTINGS.format(port=free_port(), lease=lease))
        self.maxima: dict[str, int] = {}

    def add_site(self, name: str, text: str) -> None:
        """Write the file of a site."""
        head = f'folder = "{self.folder}/{name}"\npoll = "0.5s"\nsettle = "0.5s"\n'
        (self.root / "sites" / f"{name}.toml").write_text(head + text)

    def add_pool(
        self, name: str, site: str, maximum: int, pilot: str = "cpus = 1", more: str = ""
    ) -> None:
        """Write the file of a pool."""
        self.maxima[name] = maximum
        head = f'site = "{site}"\nmaximum = {maximum}\ninterval = "0.5s"\n'
        text = f"{head}{more}\n[pilot]\n{pilot}\n"
        (self.root / "pools" / f"{name}.toml").write_text(text + _QUICK)

    def pilots(self) -> list[PoolPilot]:
        """Read all pilots that pools ever asked for."""
        with Project(self.root) as project:
            return pilots(project.db)

    def count(self) -> collections.Counter[str]:
        """Count pilots by state."""
        return collections.Counter(one.state for one in self.pilots())

    def live(self, pool: str = "") -> int:
        """Count pilots that have not ended, of one pool or of all."""
        return sum(one.live for one in self.pilots() if pool in {"", one.pool})

    def look(self, pool: str) -> view.PoolView:
        """See a pool as people do."""
        with Project(self.root) as project:
            return view.pool(project.db, project.root, pool, project.clock.now())

    def rests(self, looks: int = 4) -> None:
        """Require that pools which are looked at some times more ask for nothing."""
        before = len(self.pilots())
        seen: dict[str, set[float | None]] = {pool: set() for pool in self.maxima}

        def often() -> bool:
            for pool, times in seen.items():
                times.add(self.look(pool).looked)
            return all(len(times) > looks for times in seen.values())

        self.wait(often)
        assert len(self.pilots()) == before

    def alarms(self) -> dict[str, str]:
        """Read what needs a person's attention."""
        with Project(self.root) as project:
            return dict(_query(project.db, "SELECT name, words FROM alarm"))

    def done(self) -> int:
        """Count jobs that are done."""
        with Project(self.root) as project:
            [(count,)] = _query(project.db, "SELECT count(*) FROM job WHERE state = 'done'")
        return int(count)

    def account(self) -> Account:
        """Add up what all pools held and used."""
        with Project(self.root) as project:
            found = accounts(project.db, project.clock.now()).values()
        return Account(
            *(sum(getattr(one, key) for one in found) for key in Account.__struct_fields__)
        )

    def never_too_many(self) -> None:
        """Require that no pool ever held more cores than it may, at any moment of its life."""
        for pool, maximum in self.maxima.items():
            assert self.most(pool) <= maximum, pool

    def most(self, pool: str) -> int:
        """Return the most cores that a pool had asked for at one time."""
        return _most(one for one in self.pilots() if one.pool == pool)

    def none_doubled(self, ran: Sequence[Ran]) -> None:
        """Require that what had a node is known as a pilot's, and that no pilot had two."""
        with Project(self.root) as project:
            rows = _query(project.db, _SUBMITTED)
            came = sum(one.came > 0 for one in pilots(project.db))
        known = {Ran(key, place): pilot for key, place, pilot in rows}
        forgotten = [one for one in ran if one not in known]
        assert forgotten == []
        counts = collections.Counter(known[one] for one in ran)
        assert [pilot for pilot, times in counts.items() if times != 1] == []
        numbers = collections.Counter(pilot for _, _, pilot in rows)
        assert [pilot for pilot, times in numbers.items() if times != 1] == []
        assert came <= len(ran)


def pilots(db: Db) -> list[PoolPilot]:
    """Read all pilots that pools ever asked for."""
    return [
        PoolPilot(*row[:5], msgspec.json.decode(row[5], type=PilotRequest).cpus, *row[6:])  # type: ignore[call-arg]
        for row in _query(db, _PILOTS)
    ]


def _query(db: Db, query: str) -> list[tuple[Any, ...]]:
    return db._connection.execute(query).fetchall()


def _most(mine: Iterable[PoolPilot]) -> int:
    """Return the most cores that were asked for and not gone at one time."""
    changes = []
    for one in mine:
        changes += [(one.wanted, one.cores), (one.ended or float("inf"), -one.cores)]
    most = now = 0
    # Who goes makes room for who comes in the same moment.
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


class Slurms:
    """Clusters, and what they have seen from now on."""

    def __init__(self, clusters: Mapping[str, Slurm]) -> None:
        self._clusters = dict(clusters)
        self._before = {name: len(one.ended()) for name, one in clusters.items()}

    def waiting(self) -> str:
        """Say what is in the queues."""
        return "".join(one.run("squeue", "--noheader", "-r") for one in self._clusters.values())

    def ran(self) -> list[Ran]:
        """Return what had a node and has ended."""
        return [
            Ran(job.name, job.place)
            for name, one in self._clusters.items()
            for job in one.ended()[self._before[name] :]
            if job.nodes
        ]


class Condors:
    """A pool of HTCondor, and what it has seen from now on."""

    def __init__(self, pool: Condor) -> None:
        self._pool = pool
        self._before = set(self._history())

    def waiting(self) -> str:
        """Say what is in the queue."""
        return self._pool.run("condor_q", "-allusers", "-af", "ClusterId", "ProcId", "JobStatus")

    def ran(self) -> list[Ran]:
        """Return what had a node and has ended."""
        new = [line.split() for line in self._history() if line not in self._before]
        return [Ran(key, int(place)) for key, place, _, starts in new if _some(starts)]

    def _history(self) -> list[str]:
        shown = ("PilotageKey", "ProcId", "ClusterId", "NumShadowStarts")
        return self._pool.run("condor_history", "-af", *shown).splitlines()


def _some(number: str) -> bool:
    """Say whether what HTCondor wrote is a number above 0; it may be `undefined`."""
    return number.isdigit() and int(number) > 0
