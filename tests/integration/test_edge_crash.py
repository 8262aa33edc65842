"""An agent killed with -9 at each step of its way, and started again: each job ran once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage import crash
from testbed.rabbit import Rabbit
from testbed.slurm import Slurm
from tests.contract.transfer.web import Web, serving
from tests.edge import law, rig
from tests.edge.programs import DOES
from tests.edge.rig import ADMIN, Edge

pytestmark = pytest.mark.slow

#: Points that are passed only after doubt, and where the doubt comes from.
AFTER = {"site.fenced": "site.intent", "site.renewed": "site.prepared"}
#: With PILOTAGE_SITES every point of the way through a batch system is tried, as for other sites.
POINTS = (
    crash.SITE
    if os.environ.get("PILOTAGE_SITES")
    else ("site.intent", "site.prepared", "site.submitted", "site.recorded", "site.fenced",
          "site.ended", "site.home")
)  # fmt: skip
#: Jobs that are sent before each death.
COUNT = 2


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    (tmp_path / "data").mkdir()
    with serving(tmp_path / "data") as one:
        yield one


def offer(edge: Edge, web: Web) -> None:
    """Have the site offer what passes every step: data in, before, run, after, data out."""
    steps = {"before": "cp data prepared", "after": "cp out/data out/checked"}
    pins = {}
    for name, does in steps.items():
        path = edge.programs.folder / name
        path.write_text(f"#!/bin/sh\n{does}\n")
        path.chmod(0o755)
        pins[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    before, after = pins
    edge.programs.add(
        "whole", DOES["stage"], argv=["prepared", "out/data"], preprocess=[before],
        postprocess=[after], pins=pins,
        staging={
            "protocols": ["http"], "hosts": [f"127.0.0.1:{web.port}"], "private": ["127.0.0.0/8"],
        },
    )  # fmt: skip


def send(edge: Edge, web: Web) -> list[str]:
    """Send jobs that pass every step."""
    jobs = [edge.job("whole") for _ in range(COUNT)]
    for one in jobs:
        key = one["key"]
        (web.root / key).write_text(f"data of {key}")
        one["inputs"] = [{"url": f"{web.url}/{key}", "path": "data"}]
        one["outputs"] = [{"path": "out", "url": f"{web.url}/out-{key}/"}]
    edge.send(*jobs)
    return [str(one["key"]) for one in jobs]


def die(edge: Edge, web: Web, point: str) -> list[str]:
    """Have the agent die at a point with work at hand; return what was sent."""
    keys = send(edge, web)
    if point == "edge.obeyed":
        edge.control("query", user=ADMIN)
    if before := AFTER.get(point):
        edge.dies(before)
    edge.dies(point)
    return keys


def check(edge: Edge, web: Web, keys: list[str]) -> None:
    """Let it go on, and see that each job ran once and left its output."""
    with edge.up():
        edge.wait_ended(*keys)
    law.holds(edge, keys)
    assert len(edge.jobs()) == 1 + len(keys)
    for key in keys:
        out = web.root / f"out-{key}"
        found = [path.read_text() for path in out.rglob("*") if path.name in {"data", "checked"}]
        assert found == [f"DATA OF {key.upper()}"] * 2


def test_at_every_point_of_messages_and_data(tmp_path: Path, rabbit: Rabbit, web: Web):
    with rig.at_local(tmp_path / "e", rabbit) as edge:
        offer(edge, web)
        edge.introduce()
        points = (*crash.EDGE, *crash.STAGE)
        check(edge, web, [key for point in points for key in die(edge, web, point)])


def test_on_the_way_through_slurm(tmp_path: Path, rabbit: Rabbit, slurm: Slurm, web: Web):
    with rig.at_slurm(tmp_path / "e", rabbit, slurm) as edge:
        offer(edge, web)
        edge.introduce()
        check(edge, web, [key for point in POINTS for key in die(edge, web, point)])


def test_killed_again_and_again_at_any_moment(tmp_path: Path, rabbit: Rabbit, slurm: Slurm):
    """Also while it gets ready, and while it recovers."""
    with rig.at_slurm(tmp_path / "e", rabbit, slurm) as edge:
        keys = [edge.introduce()]
        for moment in (0.3, 1.5, 2.5, 3.5, 5.0):
            keys += edge.post_many("count", 3, queue="debug")
            edge.start(ready=False)
            edge.lives(moment)
            edge.kill()
        with edge.up():
            edge.wait_ended(*keys)
        law.holds(edge, keys)
