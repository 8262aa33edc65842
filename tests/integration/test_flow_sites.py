"""Steps at sites of the project, by their batch systems: data goes there, and comes home."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.flow.model import Flow, Step, Take
from testbed.slurm import Slurm
from tests import sites
from tests.flowed import Hub

SITE = "cluster"


@pytest.fixture(params=["slurm", "local"])
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hub]:
    """A hub with a site that has its files elsewhere."""
    site = 'batch = "local"\n'
    if request.param == "slurm":
        cluster: Slurm = request.getfixturevalue("slurm")
        site = sites.slurm_site(cluster)
    made = Hub(tmp_path / "hub")
    (made.root / "sites").mkdir()
    (tmp_path / "site").mkdir()
    head = f'folder = "{tmp_path}/site"\npoll = "0.5s"\nsettle = "0.5s"\n'
    (made.root / "sites" / f"{SITE}.toml").write_text(head + site)
    yield made
    made.kill()


def step(script: str, *, site: str = "", **more: Any) -> Step:
    recipe = {"kind": "command", "argv": ["sh", "-euc", script]}
    return Step(recipe=recipe, sites=(site,) if site else (), **more)


def folder(hub: Hub, flow: int, name: str) -> Path:
    """Return the folder that a step has left."""
    return Path(hub.attempts(flow, name)[-1].place.removeprefix("file://"))


def test_data_goes_to_a_site_and_comes_home(hub: Hub) -> None:
    (hub.root / "seed.txt").write_text("seed of the project")
    flow = Flow(
        name="there-and-back",
        steps={
            "make": step(
                "mkdir -p out/deep; cat seed.txt > out/seed; echo deep > out/deep/file; pwd > at; "
                "echo '{{\"n\": 3}}' > made.json",
                site=SITE, inputs=(Take(url="seed.txt", path="seed.txt"),),
                outputs=("out/", "at"), result="made.json",
            ),
            "turn": step(
                "cat out/seed out/deep/file made.json > turned",
                inputs=(Take(step="make"),), outputs=("turned",), needs=("make",),
            ),
            "count": step(
                "test ! -e out; wc -l < turned > lines; cp turned whole; echo {make.result.n} > n",
                site=SITE, inputs=(Take(step="turn"),), outputs=("",), needs=("turn", "make"),
            ),
        },
    )  # fmt: skip
    with hub.up():
        number = hub.submit(flow)
        assert hub.wait_over(number) == ["done"], hub.told()
    told = 'seed of the projectdeep\n{"n": 3}\n'
    assert (folder(hub, number, "turn") / "turned").read_text() == told
    count = folder(hub, number, "count")
    assert (count / "whole").read_text() == told
    assert (count / "n").read_text() == "3\n"
    assert (count / "lines").read_text().strip() == "2"
    # It was not here that it ran.
    ran = Path((folder(hub, number, "make") / "at").read_text().strip())
    assert ran.is_relative_to(hub.root.parent / "site"), ran
    assert hub.attempts(number, "count")[-1].read == len(told)


def test_each_task_of_a_list_reads_its_own_at_the_site(hub: Hub) -> None:
    flow = Flow(
        name="fan",
        steps={
            "split": step(
                "echo '[4, 5, 6]' > parts.json", outputs=("parts.json",), result="parts.json"
            ),
            "square": step(
                "mkdir part; echo $(({item} * {item})) | tee part/square > n.json",
                site=SITE, each="{split.result}", outputs=("part/",), result="n.json",
                needs=("split",),
            ),
            "add": step(
                "cat $(find . -type f -name square | sort) > all; wc -l < all > n.json",
                site=SITE, inputs=(Take(step="square"),), outputs=("all",), result="n.json",
                needs=("square",),
            ),
        },
    )  # fmt: skip
    with hub.up():
        number = hub.submit(flow)
        assert hub.wait_over(number) == ["done"], hub.told()
    assert (folder(hub, number, "add") / "all").read_text().split() == ["16", "25", "36"]
    results = hub.query("SELECT result FROM flow_task WHERE flow = ? ORDER BY step, item", number)
    assert [json.loads(row[0]) for row in results] == [3, [4, 5, 6], 16, 25, 36]
