"""The ATLAS pattern: events are made on HTCondor, simulated in ranks on Slurm, counted on HTCondor.

Two real clusters, each with an agent that dials out; a hub; a broker; a transfer server. Whoever
wants the result sends one message, and hears the rest.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from examples.atlas import atlas
from testbed.condor import Condor
from testbed.rabbit import Rabbit
from testbed.slurm import Slurm
from tests.rigs.broker import edge_agent
from tests.rigs.broker.edge_agent import USER, Edge
from tests.rigs.cluster.web import Web, serving
from tests.rigs.project.flow_hub import FINAL, Hub

EXAMPLE = Path(atlas.__file__).parent
REPLY = "status.alice.atlas"
#: Few: three jobs on HTCondor and one on Slurm take their time as it is.
EVENTS = 4000
PATIENCE = 240.0


def equip(edge: Edge, site: str, web: Web) -> None:
    """Offer the programs of the example as its own files say, from where this site has them."""
    staging = {
        "protocols": ["http"], "hosts": [f"127.0.0.1:{web.port}"], "private": ["127.0.0.0/8"],
    }  # fmt: skip
    for file in sorted((EXAMPLE / "sites" / site / "apps").glob("*.toml")):
        facts = tomllib.loads(file.read_text())
        program = edge.programs.folder / Path(facts.pop("executable")).name
        shutil.copy(EXAMPLE / "programs" / program.name, program)
        # However the sources were checked out, a site runs nothing that others may write.
        program.chmod(0o755)
        digest = facts.pop("sha256")
        offered = edge.programs.offer(file.stem, program, **{**facts, "staging": staging})
        assert digest in offered.read_text()
    edge.change({})  # what is new belongs to whoever runs the agent


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with serving(tmp_path_factory.mktemp("web")) as one:
        yield one


@pytest.fixture(scope="module")
def farm(rabbit: Rabbit, condor: Condor, web: Web) -> Iterator[Edge]:
    with tempfile.TemporaryDirectory(dir=condor.shared) as folder:
        Path(folder).chmod(0o755)
        with edge_agent.at_condor(Path(folder) / "e", rabbit, condor) as one:
            equip(one, "condor", web)
            with one.up():
                yield one


@pytest.fixture(scope="module")
def machine(
    farm: Edge, tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit, slurm: Slurm, web: Web
) -> Iterator[Edge]:
    folder = tmp_path_factory.mktemp("atlas") / "e"
    with edge_agent.at_slurm(folder, rabbit, slurm, beside=farm) as one:
        equip(one, "slurm", web)
        with one.up():
            yield one


@pytest.fixture(scope="module")
def hub(farm: Edge, web: Web, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    settings = {"flows": {"data": f"{web.url}/flows", "users": [USER]}}
    made = Hub(tmp_path_factory.mktemp("atlas") / "hub", farm, settings=settings)
    with made.up():
        yield made


@pytest.fixture
def busy(slurm: Slurm) -> Iterator[None]:
    """Have one node of four busy: whoever wants all of them would have to wait."""
    words = ("sbatch", "--parsable", "--output=/dev/null", "--nodelist=n1", "--cpus-per-task=4")
    job = slurm.run(*words, "--time=9", "--wrap=sleep 600").strip()
    form = ("--noheader", "--format=%T")
    try:
        slurm.wait(
            lambda: "RUNNING" in slurm.run("squeue", f"--jobs={job}", *form),
            "n1 is not busy", "log/slurmctld",
        )  # fmt: skip
        yield
    finally:
        slurm.run("scancel", "--quiet", job)


def heard(farm: Edge, since: float) -> list[dict[str, Any]]:
    return [one.said for one in farm.raw(REPLY) if one.when >= since]


def result(folder: Path) -> dict[str, Any]:
    """Find what came out, wherever below the folder it is."""
    (found,), (picture,) = folder.rglob("result.json"), folder.rglob("mass.svg")
    assert picture.read_text().startswith("<svg")
    told: dict[str, Any] = json.loads(found.read_text())
    assert abs(told["mass"] - 91.19) < 5 * told["mass_error"] + 0.05
    return told


def by_hand(folder: Path) -> dict[str, Any]:
    """Run the four programs one after another, and return what comes out."""
    for name, more in (
        ("generate", ["--events", str(EVENTS)]), ("simulate", []), ("merge", []), ("histogram", []),
    ):  # fmt: skip
        program = [str(EXAMPLE / "programs" / f"{name}.py"), *more]
        subprocess.run(program, cwd=folder, check=True, capture_output=True, timeout=60)
    return result(folder)


def runs_at(hub: Hub, flow: int, sites: Mapping[str, Edge]) -> None:
    """Require that each step ran once, where it should."""
    for step, edge in sites.items():
        (one,) = hub.attempts(flow, step)
        assert (one.site, one.state) == (edge.site, "done"), step


def number_of(hub: Hub, name: str) -> int:
    """Wait until a message has become a workflow."""
    query = "SELECT id FROM flow WHERE name = ?"
    hub.wait(lambda: hub.query(query, name))
    return int(hub.query(query, name)[0][0])


@pytest.mark.usefixtures("busy")
def test_one_message_makes_a_measurement(hub: Hub, farm: Edge, machine: Edge, web: Web) -> None:
    since = time.time()
    flow = tomllib.loads((EXAMPLE / "atlas.toml").read_text()) | {"to": f"{web.url}/ours/"}
    params = {"farm": farm.site, "machine": machine.site, "events": EVENTS}
    farm.known_as(USER).post(
        "flow", {"v": 1, "kind": "flow", "flow": flow, "params": params, "reply": REPLY}
    )
    number = number_of(hub, "atlas")
    assert hub.wait_over(number, patience=PATIENCE) == ["done"], hub.told()
    runs_at(hub, number, {"generate": farm, "simulate": machine, "merge": farm, "histogram": farm})
    result(web.root / "ours")
    # It ran over several nodes, as many as were free, with two ranks on each.
    ((merged,),) = hub.query(
        "SELECT result FROM flow_task WHERE flow = ? AND step = 'merge'", number
    )
    told = json.loads(merged)
    assert told["events"] == EVENTS
    assert told["ranks"] in (4, 6)
    # A reason may be replaced by the next one before it is sent; the order keeps its own.
    orders = [json.loads(body) for (body,) in machine.query("SELECT body FROM submission")]
    why = [order["fit"]["why"] for order in orders if order.get("fit")]
    assert any(one.startswith(f"{told['ranks'] // 2} nodes for") for one in why), why
    # And whoever asked has heard of the end.
    hub.wait(lambda: any(one.get("state") == "done" for one in heard(farm, since)))


def _sent_or_over(hub: Hub, number: int, step: str) -> bool:
    return bool(hub.attempts(number, step)) or hub.flow(number).state in FINAL


@pytest.mark.slow
def test_all_who_take_part_are_killed_on_the_way(
    hub: Hub, farm: Edge, machine: Edge, web: Web, tmp_path: Path
) -> None:
    """Each step is done once, and the outcome is the same."""
    flow = tomllib.loads((EXAMPLE / "atlas.toml").read_text())
    flow |= {"to": f"{web.url}/killed/", "name": "killed"}
    params = {"farm": farm.site, "machine": machine.site, "events": EVENTS}
    farm.known_as(USER).post("flow", {"v": 1, "kind": "flow", "flow": flow, "params": params})
    number = number_of(hub, "killed")
    steps = {"generate": farm, "simulate": machine, "merge": farm, "histogram": farm}
    for step, edge in steps.items():
        hub.wait(functools.partial(_sent_or_over, hub, number, step), PATIENCE)
        assert hub.attempts(number, step), hub.told()
        for one in (hub, edge):
            one.kill()
            one.start()
    assert hub.wait_over(number, patience=PATIENCE) == ["done"], hub.told()
    runs_at(hub, number, steps)
    assert result(web.root / "killed") == by_hand(tmp_path)


def test_the_definition_of_the_original_runs_as_it_is(
    hub: Hub, farm: Edge, machine: Edge, web: Web
) -> None:
    since = time.time()
    definition = json.loads((EXAMPLE / "atlas-argo.json").read_text())
    names = {"condor": farm.site, "slurm": machine.site}
    for job in definition["subjobs"]:
        job["site"] = names[job["site"]]
    definition |= {
        "name": "argo", "output_url": f"{web.url}/theirs/", "job_status_routing_key": REPLY,
    }  # fmt: skip
    farm.known_as(USER).post("argo_job", definition)
    number = number_of(hub, "argo")
    assert hub.wait_over(number, patience=PATIENCE) == ["done"], hub.told()
    runs_at(
        hub, number,
        {"1-generate": farm, "2-simulate": machine, "3-merge": farm, "4-histogram": farm},
    )  # fmt: skip
    assert result(web.root / "theirs")["events"] > 10_000
    hub.wait(lambda: "HISTORY" in str(heard(farm, since)) or "FINISHED" in str(heard(farm, since)))


def test_each_chunk_may_be_a_task_of_its_own(hub: Hub, farm: Edge, machine: Edge, web: Web) -> None:
    """How many there are is known when the first step has run; the last waits for all."""
    flow = atlas.each_chunk().to_dict() | {"to": f"{web.url}/each/"}
    names = {"condor": farm.site, "slurm": machine.site}
    for step in flow["step"].values():
        step["site"] = names[step["site"]]
    params = {"events": EVENTS, "chunks": 3}
    farm.known_as(USER).post("flow", {"v": 1, "kind": "flow", "flow": flow, "params": params})
    number = number_of(hub, "atlas-each")
    assert hub.wait_over(number, patience=PATIENCE) == ["done"], hub.told()
    assert [one.site for one in hub.attempts(number, "simulate")] == [machine.site] * 3
    assert result(web.root / "each")["events"] > EVENTS / 2
