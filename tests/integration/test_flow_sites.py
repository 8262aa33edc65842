"""Steps at sites of the project, by their batch systems: data goes there, and comes home."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pilotage.edge.handoff import Take
from pilotage.flow.model import Flow, Step
from pilotage.hub.project import Project
from pilotage.job import machine, records
from pilotage.job.model import Command, Job, JobSpec, NewJob, State
from testbed.ports import free_port
from testbed.slurm import Slurm
from testbed.ssh import Sshd
from tests.rigs.cluster import batch_site
from tests.rigs.project.flow_hub import Hub
from tests.suite import programs, system

SITE = "cluster"


@pytest.fixture
def near(tmp_path: Path) -> Iterator[Hub]:
    """A hub with a site on this machine that has its files elsewhere."""
    made = with_site(tmp_path, 'batch = "local"\n')
    yield made
    made.kill()


@pytest.fixture
def hub(slurm: Slurm, tmp_path: Path) -> Iterator[Hub]:
    """A hub with a site that has a real batch system."""
    made = with_site(tmp_path, batch_site.slurm_site(slurm))
    yield made
    made.kill()


@pytest.fixture
def far(sshd: Sshd, tmp_path: Path) -> Iterator[Hub]:
    """A hub with a site by SSH, where somebody works who cannot see the hub's files."""
    name = f"flows-{secrets.token_hex(4)}"
    made = with_site(tmp_path, batch_site.ssh_site(sshd, 'batch = "local"\n'), f"~/{name}")
    yield made
    made.kill()
    shutil.rmtree(sshd.user.home / name, ignore_errors=True)


def with_site(folder: Path, site: str, there: str = "") -> Hub:
    made = Hub(folder / "hub", settings={"hub": {"port": free_port()}})
    for one in (made.root / "sites", folder / "site"):
        one.mkdir()
    head = f'folder = "{there or folder / "site"}"\npoll = "0.5s"\nsettle = "0.5s"\n'
    (made.root / "sites" / f"{SITE}.toml").write_text(head + site)
    return made


def step(script: str, *, site: str = "", **more: Any) -> Step:
    recipe = {"kind": "command", "argv": ["sh", "-euc", script]}
    return Step(recipe=recipe, sites=(site,) if site else (), **more)


def folder(hub: Hub, flow: int, name: str) -> Path:
    """Return the folder that a step has left."""
    return Path(hub.attempts(flow, name)[-1].place.removeprefix("file://"))


@pytest.mark.parametrize("way", ["hub", "far"], ids=["slurm", "ssh"])
def test_data_goes_to_a_site_and_comes_home(request: pytest.FixtureRequest, way: str) -> None:
    hub: Hub = request.getfixturevalue(way)
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
    assert not ran.is_relative_to(hub.root), ran
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


@pytest.mark.parametrize("crash", ["site.staging_out", "site.home", "flow.chosen"])
def test_a_hub_that_is_killed_brings_it_home_once(near: Hub, crash: str) -> None:
    (near.root / "seed").write_text("seed")
    flow = Flow(
        name="killed",
        steps={
            "make": step(
                "mkdir out; cat seed > out/seed; echo ran >> $0/ran",
                site=SITE, inputs=(Take(url="seed", path="seed"),), outputs=("out/",),
            ),
            "read": step(
                "cat out/seed > got", inputs=(Take(step="make"),), outputs=("got",),
                needs=("make",),
            ),
        },
    )  # fmt: skip
    argv = flow.steps["make"].recipe["argv"]
    argv.append(str(near.root.parent))
    number = near.submit(flow)
    near.dies(crash)
    with near.up():
        assert near.wait_over(number) == ["done"], near.told()
    assert (folder(near, number, "read") / "got").read_text() == "seed"
    assert (near.root.parent / "ran").read_text() == "ran\n"


def test_what_is_not_left_at_the_site_fails_the_step_by_name(near: Hub) -> None:
    flow = Flow(
        name="nothing",
        steps={
            "make": step("echo 1 > other", site=SITE, outputs=("out.dat",)),
            "bad": step("echo {{ > r.json", site=SITE, result="r.json"),
        },
    )
    with near.up():
        number = near.submit(flow)
        assert near.wait_over(number) == ["failed"], near.told()
        near.wait(lambda: set(near.steps(number).values()) == {"failed"})
    assert "out.dat" in near.reasons(number)["make"]
    assert "`r.json`" in near.reasons(number)["bad"]


def test_nobody_reads_the_folder_of_another_s_step(near: Hub) -> None:
    flow = Flow(name="mine", steps={"make": step("echo 1 > out", site=SITE, outputs=("out",))})
    with near.up():
        number = near.submit(flow)
        assert near.wait_over(number) == ["done"], near.told()
        work = next((near.root / ".pilotage" / "flows" / "work").rglob("out")).parent
        spec = JobSpec(
            Command(("cat", "out")), name="mine/make", cwd=str(work), inputs=(str(work),),
            site=SITE, via="batch",
        )  # fmt: skip
        with Project(near.root) as project, project.change() as db:
            job = records.add(
                db, NewJob(spec, tag=f"flow:{number}", owner="eve"), project.clock.now()
            )
        assert job is not None

        def ended() -> Job | None:
            with Project(near.root) as project:
                found = project.job(job)
            return found if found.state in machine.FINAL else None

        near.wait(ended)
        found = ended()
    assert found is not None
    assert found.state is State.FAILED
    assert "a job of eve may not name" in found.reason


def test_data_of_steps_goes_to_a_pilot_that_does_not_see_it_and_comes_home(near: Hub) -> None:
    system.needs("bwrap")
    flow = Flow(
        name="far",
        steps={
            "here": step("echo hi > out", outputs=("out",), requirements="site == 'local'"),
            "there": step(
                "tr a-z A-Z < out > up", outputs=("up",), requirements="site == 'far'",
                inputs=(Take(step="here"),),
            ),
            "home": step(
                "cat up > end", outputs=("end",), requirements="site == 'local'",
                inputs=(Take(step="there"),),
            ),
        },
    )  # fmt: skip
    with near.up(), pilot(near, "far"):
        number = near.submit(flow)
        assert near.wait_over(number) == ["done"], near.told()
    assert (folder(near, number, "home") / "end").read_text() == "HI\n"


@contextmanager
def pilot(hub: Hub, site: str) -> Iterator[None]:
    """Have a real pilot that shows nothing of this machine to its payloads."""
    program, env = (
        [sys.executable, "-m", "pilotage"],
        {**os.environ, "PYTHONPATH": str(batch_site.SRC)},
    )
    words = ["token", "new", "enrol", "--site", site, "--json", "--project", str(hub.root)]
    made = subprocess.run([*program, *words], env=env, check=True, capture_output=True)
    secret, work = hub.root.parent / "token", hub.root.parent / "pilot"
    secret.touch(0o600)
    secret.write_text(json.loads(made.stdout)["token"])
    port = tomllib.loads((hub.root / "pilotage.toml").read_text())["hub"]["port"]
    words = ["pilot", "run", "--hub", f"http://127.0.0.1:{port}", "--secret-file", str(secret)]
    with (hub.root.parent / "pilot.said").open("wb") as said:
        process = subprocess.Popen(
            [*program, *words, "--cpus", "1", "--work", str(work)], env=env, stdout=said,
            stderr=said,
        )  # fmt: skip
    try:
        yield
    finally:
        programs.end(process)
