"""Jobs reach a site by the broker alone: whoever speaks AMQP is served, and each job runs once."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.condor import Condor
from testbed.rabbit import Rabbit
from testbed.slurm import Slurm
from tests.rigs.broker import edge_agent, invariants
from tests.rigs.broker.applications import DOES
from tests.rigs.broker.edge_agent import Edge
from tests.rigs.cluster.web import Web, serving

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def local(tmp_path: Path, rabbit: Rabbit) -> Iterator[Edge]:
    with edge_agent.at_local(tmp_path / "e", rabbit) as edge:
        yield edge


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    (tmp_path / "data").mkdir()
    with serving(tmp_path / "data") as one:
        yield one


def staging(web: Web) -> dict[str, Any]:
    """Let an application fetch from a server of this machine."""
    return {
        "protocols": ["http"],
        "hosts": [f"127.0.0.1:{web.port}"],
        "private": ["127.0.0.0/8"],
    }


# -- definitions of Balsam's ---------------------------------------------------------------------


def slide() -> dict[str, Any]:
    """Read the definition that the original's slides show, from our own page on messages."""
    page = (DOCS / "reference" / "messages.md").read_text()
    [found] = [
        one for one in re.findall(r"```json\n(.*?)```", page, re.DOTALL) if "num_nodes" in one
    ]
    return dict(json.loads(found))


@pytest.mark.slow
def test_the_definition_of_the_seeds_slide_runs(
    tmp_path: Path, rabbit: Rabbit, slurm: Slurm, web: Web
):
    """Posted by a plain client that knows neither us nor any topic but the name of the site."""
    (web.root / "in").mkdir()
    (web.root / "in" / "data").write_text("events")
    (web.root / "in" / "file_to_config_app.cfg").write_text("target = out/found\n")
    (web.root / "out").mkdir()
    with edge_agent.at_slurm(tmp_path / "e", rabbit, slurm) as edge:
        edge.change({"bus": {"jobs": {edge.site: "argo"}}})
        edge.programs.add(
            "unique_application_name", f"{DOES['gate']}{DOES['stage']}", argv=["data", "{target}"],
            parameter={"target": {"kind": "path"}}, config={"format": "keys"},
            staging=staging(web), users=["argo"],
        )  # fmt: skip
        told = slide() | {
            "site": edge.site, "queue": "debug", "wall_time_minutes": 3, "num_nodes": 2,
            "processes_per_node": 2, "input_url": f"{web.url}/in", "output_url": f"{web.url}/out",
        }  # fmt: skip
        # With the comma that the slide has after the last field.
        body = json.dumps(told, indent=2).removesuffix("\n}") + ",\n}"
        with edge.up():
            edge.send(body.encode(), topic=edge.site, user="bob", named=False)
            # A job that is over before the agent looks is never seen running.
            edge.wait(lambda: balsam(edge)[-1:] == ["RUNNING"])
            edge.programs.gate.touch()
            edge.wait(lambda: balsam(edge)[-1:] == ["JOB_FINISHED"])
        assert (web.root / "out" / "out" / "found").read_text() == "EVENTS"
        states = [*dict.fromkeys(balsam(edge))]
        order = ["CREATED", "PREPROCESSED", "QUEUED", "RUNNING", "JOB_FINISHED"]
        assert [state for state in states if state in order] == order
        last = edge.raw("balsam_job_status")[-1].said
        assert set(last) == {"job_id", "serialized_job", "message"}
        job = json.loads(last["serialized_job"])
        assert (job["name"], job["argo_job_id"]) == (told["name"], told["argo_job_id"])
        assert (job["num_nodes"], job["processes_per_node"]) == (2, 2)
        assert str(job["scheduler_id"]) in {one.id for one in slurm.ended()}
        first = edge.raw("balsam_job_status")[0].said
        assert "scheduler_config" in first["message"]
        assert [*edge.programs.started().values()] == [1]


def balsam(edge: Edge) -> list[str]:
    """Return the states that were said in the original's words."""
    said = [one.said for one in edge.raw("balsam_job_status")]
    return [json.loads(one["serialized_job"])["state"] for one in said]


# -- messages of ours ----------------------------------------------------------------------------


def test_a_job_runs_once_however_often_it_is_sent(local: Edge):
    with local.up():
        keys = [local.post("count", times=3) for _ in range(5)]
        local.wait_ended(*keys)
        local.send(*[local.job("count", key) for key in keys])
        after = local.post("count")
        local.wait_ended(after)
    invariants.holds(local, [*keys, after])
    assert len(local.jobs()) == 6


def test_jobs_that_were_sent_while_nobody_was_there_run(local: Edge):
    with local.up():
        first = local.post("count")
        local.wait_ended(first)
    keys = local.post_many("count", 8)
    with local.up():
        local.wait_ended(*keys)
    invariants.holds(local, [first, *keys])


def test_a_job_that_fails_says_how(local: Edge):
    with local.up():
        key = local.post("fail", parameters={"status": 7})
        local.wait_ended(key)
    invariants.holds(local, [key], ran=False)
    last = local.end(key)
    assert last is not None
    assert last["state"] == "failed"
    assert last["reason"]["class"] == "application"
    assert "7" in last["reason"]["text"]


def test_data_comes_and_goes_by_url(local: Edge, web: Web):
    (web.root / "one").write_text("hello")
    local.programs.offer(
        "stage", local.programs.folder / "stage", argv=["data", "out/data"], staging=staging(web)
    )
    with local.up():
        key = local.post(
            "stage", inputs=[{"url": f"{web.url}/one", "path": "data"}],
            outputs=[{"path": "out/data", "url": f"{web.url}/out/"}],
        )  # fmt: skip
        local.wait_ended(key)
    invariants.holds(local, [key])
    assert (web.root / "out" / "data").read_text() == "HELLO"


def test_what_is_refused_is_said_and_kept_with_the_reason(local: Edge):
    with local.up():
        key = local.post("nothing-like-that")
        local.wait_ended(key)
        local.send(b"no JSON")
        local.wait(lambda: len(local.raw(f"refused.{local.site}")) == 2)
    invariants.holds(local, [key], ran=False)
    last = local.end(key)
    assert last is not None
    assert (last["state"], last["job"]) == ("rejected", 0)
    assert local.jobs() == {}


# -- batch systems -------------------------------------------------------------------------------


@pytest.mark.slow
def test_slurm(tmp_path: Path, rabbit: Rabbit, slurm: Slurm):
    with edge_agent.at_slurm(tmp_path / "e", rabbit, slurm) as edge, edge.up():
        keys = edge.post_many("count", 8, queue="debug")
        edge.wait_ended(*keys)
        invariants.holds(edge, keys)


@pytest.mark.slow
def test_htcondor(rabbit: Rabbit, condor: Condor):
    with (
        tempfile.TemporaryDirectory(dir=condor.shared) as folder,
        edge_agent.at_condor(Path(folder) / "e", rabbit, condor) as edge,
    ):
        Path(folder).chmod(0o755)
        with edge.up():
            keys = edge.post_many("count", 8)
            edge.wait_ended(*keys)
            invariants.holds(edge, keys)
