"""Workflows that a program starts at a hub, waits for, calls off, and whose results it reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage import Flow
from pilotage.base import errors
from pilotage.client import AsyncClient, Client, where
from pilotage.client.flow import definition
from tests.rigs.project.functions import add, double
from tests.rigs.project.project import Rig
from tests.suite.programs import PATIENCE

SETTINGS = "[hub]\nport = 0\n[site]\ncpus = 2\n"
FLOW = """
name = "sum"
required = ["most"]

[step.list]
python = "steps.py:numbers"
parameters = { most = "{most}" }

[step.sum]
script = "sum.sh"
args = ["{list.result}"]
outputs = ["sum.json"]
result = "sum.json"

[outputs]
sum = "sum/sum.json"
"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("hub"), settings=SETTINGS)
    with rig.up():
        rig.wait(lambda project: (project.state / "hub.json").exists())
        yield rig


@pytest.fixture
def client(rig: Rig) -> Iterator[Client]:
    with Client(where.find(start=rig.root)) as client:
        yield client


def written(folder: Path) -> Path:
    """Write a workflow with files beside it, as a program elsewhere has it."""
    (folder / "steps.py").write_text("def numbers(most): return list(range(most + 1))")
    code = "import sys; print(sum(map(int, sys.argv[1:])))"
    (folder / "sum.sh").write_text(f'#!/bin/sh\npython3 -c "{code}" "$@" > sum.json\n')
    file = folder / "sum.toml"
    file.write_text(FLOW)
    return file


def test_a_flow_of_a_file_is_started_and_its_results_are_read(client: Client, tmp_path: Path):
    run = client.flow(written(tmp_path), {"most": 4}, key="once")
    assert run.results == {"sum": 10}
    assert run.state == "done"
    assert [Path(one).read_text() for one in run.files] == ["10\n"]
    assert client.flow(tmp_path / "sum.toml", {"most": 4}, key="once").number == run.number
    assert client.flow(tmp_path / "sum.toml", {"most": 5}).results == {"sum": 15}


def test_a_flow_of_functions_is_started(client: Client):
    flow = Flow("functions")
    first = flow.step("first", python=double, parameters={"value": 4})
    flow.step("last", python=add, parameters={"first": first.result(), "second": 1})
    flow.output("all", "last")
    assert client.flow(flow).results == {"all": 9}


def test_a_flow_that_fails_says_so_and_runs_again_when_asked(client: Client, tmp_path: Path):
    good = tmp_path / "good"
    run = client.flow({"name": "bad", "step": {"a": {"run": ["test", "-e", str(good)]}}})
    assert run.wait(PATIENCE) == "failed"
    with pytest.raises(errors.JobFailed, match="`a` failed"):
        _ = run.results
    good.touch()
    assert run.retry() == ["a"]
    assert run.wait(PATIENCE) == "done"


def test_a_flow_is_called_off(client: Client):
    run = client.flow({"name": "long", "step": {"a": {"run": ["sleep", "600"]}}})
    with pytest.raises(errors.TimedOut):
        run.wait(0.1)
    run.cancel()
    assert run.wait(PATIENCE) == "cancelled"


def test_mistakes_are_told_before_anything_runs(client: Client, tmp_path: Path):
    with pytest.raises(errors.BadFlow, match="no parameter `no`"):
        client.flow(written(tmp_path), {"most": 1, "no": 2})
    with pytest.raises(errors.BadFlow, match="there is no file here"):
        client.flow({"name": "x", "step": {"a": {"python": "steps.py"}}})
    with pytest.raises(errors.NotFound):
        client.flow(tmp_path / "none.toml")


async def test_a_flow_is_awaited(rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(rig.root)
    async with AsyncClient() as client:
        run = await client.flow(written(tmp_path), {"most": 3})
        assert await run.wait() == "done"
        assert await run.results() == {"sum": 6}
        assert await run.state() == "done"
        off = await client.flow({"name": "long", "step": {"a": {"run": ["sleep", "600"]}}})
        await off.cancel()
        assert await off.wait() == "cancelled"


def test_files_beside_a_workflow_travel_with_it(tmp_path: Path):
    (tmp_path / "in").mkdir()
    written(tmp_path / "in")
    (tmp_path / "outer.toml").write_text('name = "o"\n[step.in]\nflow = "in/sum.toml"\n')
    inner = definition(tmp_path / "outer.toml")["step"]["in"]["flow"]
    assert inner["step"]["list"]["function"] == "numbers"
    assert inner["step"]["list"]["python"].startswith("def numbers")
    assert inner["step"]["sum"]["script"].startswith("#!/bin/sh\n")
