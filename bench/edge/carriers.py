"""How soon a submission at the hub becomes a call of `sbatch`: by a broker, and by the hub's port.

One hub, one Slurm and two agents; the two take turns, and so does a rule whose jobs go by the port.
"""

from __future__ import annotations

import functools
import secrets
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
from pilotage.job.records import Selection
from testbed.certificates import put
from testbed.ports import free_port
from testbed.rabbit import Rabbit
from testbed.slurm import Slurm
from tests.contract.transfer.web import serving
from tests.edge import rig
from tests.edge.ported import Ported
from tests.edge.rig import ADMIN, AGENT, USER
from tests.flowed import Hub

_MS = 1000
#: At most so many times as long as by a broker.
_TIMES = 1.1
#: At most so many times as long as a submission to the same site.
_RULE_TIMES = 1.4
_RULE = """
[rule.port]
files = "drop/*.txt"
app = "reads"
site = "{site}"
"""


def measure(scratch: Path, times: int, found: Found) -> None:
    """Submit jobs one after the other, to each site in turn."""
    batch = {"poll": f"{POLL_S:g}s", "jobs": 20_000, "per_second": 1000.0}
    here, there = counted(scratch / "amqp"), counted(scratch / "port")
    port = free_port()
    (scratch / "web").mkdir()
    with (
        Rabbit(users=(AGENT, ADMIN, USER)) as rabbit, Slurm() as cluster,
        serving(scratch / "web") as web,
    ):  # fmt: skip
        by_broker = rig.at_slurm(
            scratch / "a", rabbit, cluster, settings={"batch": {**batch, "path": [str(here)]}}
        )
        with by_broker:
            host = f"127.0.0.1:{web.port}"
            told = {
                "hub": {"host": "127.0.0.1", "port": port},
                "flows": {"data": f"{web.url}/data", "hosts": [host]},
            }
            hub = Hub(scratch / "hub", by_broker, settings=told)
            slurm = {"batch": "slurm", "env": cluster.env, **batch, "path": [str(there)]}
            with hub.up(), Ported(scratch / "p", hub, port, slurm) as by_port:
                by_port.enrol()
                staging = {"protocols": ["http"], "hosts": [host], "private": ["127.0.0.0/8"]}
                by_port.programs.add("reads", "cat *.txt", staging=staging)
                (hub.root / "drop").mkdir()
                put(hub.root / "rules" / "port.toml", _RULE.format(site=by_port.site).encode())
                beds = {
                    "amqp": Bed(by_broker, cluster, here), "port": Bed(by_port, cluster, there)
                }  # fmt: skip
                with by_broker.up(), by_port.up():
                    _turns(hub, beds, times, found)


def _turns(hub: Hub, beds: dict[str, Bed], times: int, found: Found) -> None:
    asks = {
        name: (one, functools.partial(_submit, hub, one.edge.site)) for name, one in beds.items()
    }
    there = beds["port"]
    asks["rule"] = (there, functools.partial(_drop, hub))
    asks["file"] = (there, functools.partial(_submit, hub, there.edge.site, "reads", "some.txt"))
    delays: dict[str, list[float]] = {name: [] for name in asks}
    # The first of each is not counted: agents look at their programs, and the hub at its sites.
    for at in range(times + 1):
        for name, (one, ask) in asks.items():
            before, sent = len(one.calls("sbatch")), time.time()
            ask()
            one.wait(functools.partial(_called, one, before), 0.002)
            if at:
                delays[name].append(_MS * (one.calls("sbatch")[before] - sent))
            hub.wait(functools.partial(_idle, hub))
    for name, some in delays.items():
        found.add(f"submission, {name}", statistics.median(some))


def _submit(hub: Hub, site: str, app: str = "count", *files: str) -> None:
    for file in files:
        put(hub.root / file, secrets.token_bytes(1))
    new = NewJob(JobSpec(recipe=App(app), name="job", site=site, inputs=files))
    with Project(hub.root) as project:
        with project.db.transaction() as db:
            records.add(db, new, project.clock.now())
        project.poke()


def _drop(hub: Hub) -> None:
    put(hub.root / "drop" / f"{secrets.token_hex(4)}.txt", secrets.token_bytes(1))


def _called(one: Bed, before: int) -> bool:
    return len(one.calls("sbatch")) > before


def _idle(hub: Hub) -> bool:
    """Say whether all jobs are over."""
    with Project(hub.root) as project:
        return all(job.state in machine.FINAL for job in project.jobs(Selection()))


def figures(found: Found) -> Iterator[Figure]:
    """Say what was found."""
    yield figure(
        "agent by the hub's port: from submission to sbatch, p50", "ms",
        found["submission, port"], peers={"AMQP": found["submission, amqp"]},
        goal=Goal(round(1 / _TIMES, 3), "AMQP"),
        note=f"at most {_TIMES:g} times as long as by AMQP in the same run",
    )  # fmt: skip
    yield figure(
        "rule at a site with an agent: from file to sbatch, p50", "ms", found["submission, rule"],
        peers={
            "submission": found["submission, port"],
            "submission with a file": found["submission, file"],
        },
        goal=Goal(round(1 / _RULE_TIMES, 3), "submission"),
        note=f"at most {_RULE_TIMES:g} times as long as a submission to the same site in the same "
        "run; the file that fired it is brought to the site, by a transfer server",
    )  # fmt: skip
