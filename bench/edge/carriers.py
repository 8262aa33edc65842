"""How soon a submission at the hub becomes a call of `sbatch`: by a broker, and by the hub's port.

One hub, one Slurm and two agents; the two take turns.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from bench.edge.bed import POLL_S, Bed, counted
from bench.figure import Figure, Goal, figure
from bench.remote.found import Found
from pilotage.hub.project import Project
from pilotage.job import machine, records
from pilotage.job.model import App, JobSpec, NewJob
from testbed.ports import free_port
from testbed.rabbit import Rabbit
from testbed.slurm import Slurm
from tests.edge import rig
from tests.edge.ported import Ported
from tests.edge.rig import ADMIN, AGENT, USER
from tests.flowed import Hub

_MS = 1000
#: At most so many times as long as by a broker.
_TIMES = 1.1


def measure(scratch: Path, times: int, found: Found) -> None:
    """Submit jobs one after the other, to each site in turn."""
    batch = {"poll": f"{POLL_S:g}s", "jobs": 20_000, "per_second": 1000.0}
    here, there = counted(scratch / "amqp"), counted(scratch / "port")
    port = free_port()
    with Rabbit(users=(AGENT, ADMIN, USER)) as rabbit, Slurm() as cluster:
        by_broker = rig.at_slurm(
            scratch / "a", rabbit, cluster, settings={"batch": {**batch, "path": [str(here)]}}
        )
        with by_broker:
            told = {"hub": {"host": "127.0.0.1", "port": port}}
            hub = Hub(scratch / "hub", by_broker, settings=told)
            slurm = {"batch": "slurm", "env": cluster.env, **batch, "path": [str(there)]}
            with hub.up(), Ported(scratch / "p", hub, port, slurm) as by_port:
                by_port.enrol()
                beds = {
                    "amqp": Bed(by_broker, cluster, here), "port": Bed(by_port, cluster, there)
                }  # fmt: skip
                with by_broker.up(), by_port.up():
                    _turns(hub, beds, times, found)


def _turns(hub: Hub, beds: dict[str, Bed], times: int, found: Found) -> None:
    delays: dict[str, list[float]] = {name: [] for name in beds}
    # The first of each is not counted: agents look at their programs, and the hub at its sites.
    for at in range(times + 1):
        for name, one in beds.items():
            before, sent = len(one.calls("sbatch")), time.time()
            job = _submit(hub, one.edge.site)
            one.wait(functools.partial(_called, one, before), 0.002)
            if at:
                delays[name].append(_MS * (one.calls("sbatch")[before] - sent))
            hub.wait(functools.partial(_over, hub, job))
    for name, some in delays.items():
        found.add(f"submission, {name}", statistics.median(some))


def _submit(hub: Hub, site: str) -> int:
    new = NewJob(JobSpec(recipe=App("count"), name="job", site=site))
    with Project(hub.root) as project:
        with project.db.transaction() as db:
            job = records.add(db, new, project.clock.now())
        project.poke()
    return job or 0


def _called(one: Bed, before: int) -> bool:
    return len(one.calls("sbatch")) > before


def _over(hub: Hub, job: int) -> bool:
    with Project(hub.root) as project:
        return project.job(job).state in machine.FINAL


def figures(found: Found) -> Iterator[Figure]:
    """Say what was found."""
    yield figure(
        "agent by the hub's port: from submission to sbatch, p50", "ms",
        found["submission, port"], peers={"AMQP": found["submission, amqp"]},
        goal=Goal(round(1 / _TIMES, 3), "AMQP"),
        note=f"at most {_TIMES:g} times as long as by AMQP in the same run",
    )  # fmt: skip
