"""`pilotage flow`: as a person uses it, with the real process and real jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rocrate.rocrate import ROCrate

from tests.rigs.project.browser import SRC, Hub
from tests.suite.programs import PATIENCE

FLOW = """
name = "words"
description = "Count words in parts."

[params]
parts = 2

[step.split]
run = ["sh", "-c", "echo '{{\\"parts\\": [0, 1, {parts}]}}' > parts.json"]
outputs = ["parts.json"]
result = "parts.json"

[step.work]
each = "{split.result.parts}"
run = ["sh", "-c", "echo part {item} > part.txt"]
outputs = ["part.txt"]

[step.check]
needs = ["split"]
run = ["sh", "-c", "echo said before >&2; test -e {flag}"]

[step.join]
needs = ["check"]
inputs = ["work"]
run = ["sh", "-c", "find . -name part.txt | sort | xargs cat > all.txt"]
outputs = ["all.txt"]

[outputs]
all = "join/all.txt"
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with Hub(tmp_path_factory.mktemp("flows") / "project", settings="[site]\ncpus = 4\n") as found:
        yield found


def pilotage(hub: Hub, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pilotage", *words], cwd=hub.folder, capture_output=True, text=True,
        timeout=PATIENCE, check=False, env={**os.environ, "PYTHONPATH": SRC},
    )  # fmt: skip


def answer(hub: Hub, *words: str) -> Any:
    found = pilotage(hub, *words, "--json")
    assert found.stdout, found.stderr
    return json.loads(found.stdout)


def test_a_flow_from_its_file_to_its_crate(hub: Hub, tmp_path: Path):
    flag = tmp_path / "flag"
    file = tmp_path / "words.toml"
    file.write_text(FLOW.replace("{flag}", str(flag)))
    # It fails first: what follows is skipped at once, and it is told what to do.
    bad = pilotage(hub, "flow", "submit", str(file), "--wait", "--timeout", "60s")
    assert bad.returncode == 1, bad.stderr
    assert "check failed" in bad.stderr
    assert "flow retry 1" in bad.stderr
    steps = {one["name"]: one for one in answer(hub, "flow", "show", "1")["flow"]["steps"]}
    assert {name: one["state"] for name, one in steps.items()} == {
        "split": "done", "work": "done", "check": "failed", "join": "skipped",
    }  # fmt: skip
    assert steps["join"]["why"].startswith("`check` failed")
    told = pilotage(hub, "flow", "show", "1", "check")
    job = answer(hub, "flow", "show", "1", "check")["step"]["tasks"][0]["attempts"][0]["job"]
    assert f"`pilotage logs {job}`" in told.stderr
    assert "said before" in pilotage(hub, "logs", "--stderr", str(job)).stdout
    # What was wrong is mended, and only that and what follows runs again.
    flag.touch()
    good = pilotage(hub, "flow", "retry", "1", "--wait")
    assert good.returncode == 0, good.stderr
    assert "flow 1 is done: 4 steps" in good.stdout
    steps = {one["name"]: one for one in answer(hub, "flow", "show", "1")["flow"]["steps"]}
    assert {name: one["attempts"] for name, one in steps.items()} == {
        "split": 1, "work": 3, "check": 2, "join": 1,
    }  # fmt: skip
    assert "✓ work 3/3" in pilotage(hub, "flow", "graph", "last").stdout
    report, crate = tmp_path / "report.html", tmp_path / "crate"
    assert pilotage(hub, "flow", "report", "last", "-o", str(report)).returncode == 0
    assert "work 3/3" in report.read_text()
    done = pilotage(hub, "flow", "crate", "last", "--data", "-o", str(crate))
    assert done.returncode == 0, done.stderr
    assert (crate / "data/join/0/all.txt").read_text() == "part 0\npart 1\npart 2\n"
    read = ROCrate(crate)
    assert [one.id for one in read.get("#run-1")["result"]] == ["data/join/0/all.txt"]


def test_a_flow_is_called_off_with_all_that_runs(hub: Hub, tmp_path: Path):
    file = tmp_path / "long.toml"
    file.write_text(
        'name = "long"\n[step.sleep]\nrun = ["sleep", "600"]\n'
        '[step.after]\nneeds = ["sleep"]\nrun = ["true"]\n'
    )
    number = str(answer(hub, "flow", "submit", str(file))["id"])
    late = pilotage(hub, "flow", "submit", str(file), "--key", "k", "--wait", "--timeout", "1s")
    assert late.returncode == 124
    assert "it continues" in late.stderr
    second = str(answer(hub, "flow", "ls", "--name", "long")["flows"][0]["id"])
    ended = answer(hub, "flow", "cancel", number, second, "--wait")["flows"]
    assert [one["state"] for one in ended] == ["cancelled", "cancelled"]
    jobs = hub.ask("jobs", None, "GET")["jobs"]
    assert {one["state"] for one in jobs if one["name"] == "long/sleep"} <= {"cancelled"}


def test_a_cycle_is_refused_with_its_path(hub: Hub, tmp_path: Path):
    file = tmp_path / "round.toml"
    file.write_text(
        'name = "round"\n[step.a]\nneeds = ["c"]\nrun = ["true"]\n'
        '[step.b]\nneeds = ["a"]\nrun = ["true"]\n[step.c]\nneeds = ["b"]\nrun = ["true"]\n'
    )
    found = pilotage(hub, "flow", "submit", str(file))
    assert found.returncode == 3
    assert "`a` → `b` → `c` → `a`" in found.stderr
