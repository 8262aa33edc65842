"""How soon a submission at the hub becomes a call of `sbatch`: by a broker, and by the hub's port.

One Slurm and two agents take turns, and so do rules whose jobs go to their sites.
"""

from __future__ import annotations

import functools
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
from tests.rigs.broker import edge_agent
from tests.rigs.broker.dialing_agent import DialingAgent
from tests.rigs.broker.edge_agent import ADMIN, AGENT, USER
from tests.rigs.cluster.web import serving
from tests.rigs.project.flow_hub import Hub

_MS = 1000
_BATCH = {"poll": f"{POLL_S:g}s", "jobs": 20_000, "per_second": 1000.0}
#: A site, and what has a job go there.
Ask = tuple[Bed, Callable[[], None]]
#: At most so many times as long as by a broker.
_TIMES = 1.1
#: At most so many times as long as a submission to the same site.
_RULE_TIMES = 1.4
#: Bytes of a file that goes with a message only while few jobs are at the site.
_LARGE = 100_000
_RULES = """
[rule.{name}]
files = "{name}/*.txt"
app = "reads"
site = "{site}"
"""


def measure(scratch: Path, times: int, found: Found) -> None:
    """Submit jobs one after the other, to each site in turn; then to one with no server of data."""
    with Slurm() as cluster:
        _by_server(scratch / "server", cluster, times, found)
        _by_port(scratch / "port", cluster, times, found)


def _by_server(scratch: Path, cluster: Slurm, times: int, found: Found) -> None:
    """Have two sites: by a broker, and by the hub's port; data goes by a transfer server."""
    here, there = counted(scratch / "amqp"), counted(scratch / "port")
    port = free_port()
    (scratch / "web").mkdir()
    with Rabbit(users=(AGENT, ADMIN, USER)) as rabbit, serving(scratch / "web") as web:
        by_broker = edge_agent.at_slurm(
            scratch / "a", rabbit, cluster, settings={"batch": {**_BATCH, "path": [str(here)]}}
        )
        with by_broker:
            host = f"127.0.0.1:{web.port}"
            told = {
                "hub": {"host": "127.0.0.1", "port": port},
                "flows": {"data": f"{web.url}/data", "hosts": [host]},
            }
            staging = {
                "protocols": ["http", "hub", "message"], "hosts": [host],
                "private": ["127.0.0.0/8"],
            }  # fmt: skip
            hub = Hub(scratch / "hub", by_broker, settings=told)
            with hub.up(), _ported(scratch / "p", hub, port, cluster, there) as by_port:
                beds = {
                    "amqp": Bed(by_broker, cluster, here), "port": Bed(by_port, cluster, there)
                }  # fmt: skip
                for name, one in beds.items():
                    one.edge.programs.add("reads", "cat *.txt", staging=staging)
                    _rule(hub, f"rule-{name}", one.edge.site)
                with by_broker.up(), by_port.up():
                    asks = {name: _submission(hub, one) for name, one in beds.items()}
                    asks |= {f"rule-{name}": _dropped(hub, one, name) for name, one in beds.items()}
                    asks["file"] = _submission(hub, beds["port"], "reads", "some.txt")
                    _turns(hub, asks, times, found)


def _by_port(scratch: Path, cluster: Slurm, times: int, found: Found) -> None:
    """Have one site whose data goes by the hub's port, too."""
    there, port = counted(scratch / "port"), free_port()
    hub = Hub(scratch / "hub", settings={"hub": {"host": "127.0.0.1", "port": port}})
    with hub.up(), _ported(scratch / "p", hub, port, cluster, there) as by_port:
        by_port.programs.add("reads", "cat *.txt")
        _rule(hub, "rule-alone", by_port.site)
        with by_port.up():
            one = Bed(by_port, cluster, there)
            asks = {"alone": _submission(hub, one), "rule-alone": _dropped(hub, one, "alone")}
            _turns(hub, asks, times, found)


@contextmanager
def _ported(root: Path, hub: Hub, port: int, cluster: Slurm, tools: Path) -> Iterator[DialingAgent]:
    """Have an agent that dials the hub; it is enrolled and not started yet."""
    slurm = {"batch": "slurm", "env": cluster.env, **_BATCH, "path": [str(tools)]}
    with DialingAgent(root, hub, port, slurm) as one:
        one.enrol()
        yield one


def _rule(hub: Hub, name: str, site: str) -> None:
    (hub.root / name).mkdir()
    put(hub.root / "rules" / f"{name}.toml", _RULES.format(name=name, site=site).encode())


def _submission(hub: Hub, one: Bed, *what: str) -> Ask:
    return one, functools.partial(_submit, hub, one.edge.site, *what)


def _dropped(hub: Hub, one: Bed, name: str) -> Ask:
    return one, functools.partial(_drop, hub, f"rule-{name}")


def _turns(hub: Hub, asks: Mapping[str, Ask], times: int, found: Found) -> None:
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
        put(hub.root / file, secrets.token_bytes(_LARGE))
    new = NewJob(JobSpec(recipe=App(app), name="job", site=site, inputs=files))
    with Project(hub.root) as project:
        with project.db.transaction() as db:
            records.add(db, new, project.clock.now())
        project.poke()


def _drop(hub: Hub, folder: str) -> None:
    put(hub.root / folder / f"{secrets.token_hex(4)}.txt", secrets.token_bytes(1))


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
    ways = {
        "port": "by the hub's port and a transfer server", "amqp": "by AMQP and a transfer server",
        "alone": "by the hub's port alone",
    }  # fmt: skip
    for name, way in ways.items():
        plain, rule = found[f"submission, {name}"], found[f"submission, rule-{name}"]
        what = f"rule at a site with an agent, {way}: from file to sbatch, p50"
        more = {f"submission with {_LARGE // 1000} kB": found["submission, file"]}
        yield figure(
            what, "ms", rule, peers={"submission": plain, **(more if name == "port" else {})}
        )
        yield figure(
            f"{what}, beside a submission", "times",
            [one / other for one, other in zip(rule, plain, strict=True)], goal=Goal(_RULE_TIMES),
            note="to the same site in the same run; the file has one byte, and goes with the "
            "message, which the application allows by `hub` or `message` in its `protocols`",
        )  # fmt: skip
    pairs = zip(found["submission, file"], found["submission, port"], strict=True)
    yield figure(
        f"submission with {_LARGE // 1000} kB to a site with an agent, beside one without data",
        "times", [one / other for one, other in pairs], goal=Goal(_RULE_TIMES),
        note="it goes with the message, as few jobs are at the site",
    )  # fmt: skip
