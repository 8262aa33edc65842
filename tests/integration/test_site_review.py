"""Sites that share a folder, and a login node that nobody should trust."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pilotage.hub.project import Project
from pilotage.job.model import State
from tests.rigs.cluster.batch_site import SITE, SRC, SiteProject

WRITE = 'echo done > "$PILOTAGE_BASE/out.$0"'
OUTPUT = {"out": "out.{job}"}
#: What a broken or hostile program says in place of a frame; see
#: tests/unit/batch/test_untrusted_site.py.
HELLO = b'{"n":1,"ok":{"host":5}}'


def test_two_sites_with_one_folder_leave_each_other_their_evidence(tmp_path: Path) -> None:
    farm = SiteProject(tmp_path, 'batch = "local"\n')
    file = tmp_path / "sites" / f"{SITE}.toml"
    file.with_name("other.toml").write_text(file.read_text())
    jobs = farm.submit(10, more=WRITE, outputs=OUTPUT)
    jobs += farm.submit(10, more=WRITE, outputs=OUTPUT, site="other")
    farm.finish()
    farm.exactly_once(jobs)
    assert {job.attempt for job in farm.jobs().values()} == {1}
    # Of what is over, nothing stays there.
    assert not [*farm.folder.glob("*/news/*")]


@pytest.mark.parametrize(
    "said, told",
    [
        (
            f"echo have; printf '\\0\\0\\0\\{len(HELLO):03o}'; printf '%s' '{HELLO.decode()}'",
            "not understood",
        ),
        ("head -c 3000000 /dev/zero | tr '\\0' x", "line without end"),
    ],
    ids=["greeting", "line without end"],
)
def test_a_hub_bears_what_is_no_login_node(tmp_path: Path, said: str, told: str) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{said}\nsleep 30\n")
    program.chmod(0o755)
    farm = SiteProject(tmp_path, f'batch = "local"\npython = "{program}"\n')
    (job,) = farm.submit(1, site="")
    hub = farm.start()
    try:
        deadline = time.monotonic() + 60
        while not any(told in str(row[2]) for row in _sites(farm)):
            assert time.monotonic() < deadline, _sites(farm)
            time.sleep(0.1)
        while farm.ran() != {job: 1}:
            assert time.monotonic() < deadline, farm.told()
            time.sleep(0.1)
        assert hub.poll() is None, farm.told()
    finally:
        farm.kill()


def test_a_job_that_names_what_cannot_be_keeps_no_other_from_running(tmp_path: Path) -> None:
    farm = SiteProject(tmp_path, 'batch = "local"\n')
    (tmp_path / "in").touch()
    params = {"file": "a\0b"}
    bad = farm.submit(1, inputs=("{file}",), params=params)
    good = farm.submit(3, inputs=("in",))
    with farm.up():
        farm.wait_ended(*bad, *good)
    states = {number: job.state for number, job in farm.jobs().items()}
    assert states == dict.fromkeys(bad, State.FAILED) | dict.fromkeys(good, State.DONE)


def test_what_is_said_of_a_job_moves_no_terminal(tmp_path: Path) -> None:
    farm = SiteProject(tmp_path, 'batch = "local"\n')
    (job,) = farm.submit(1, more="exit 3", outputs={})
    with farm.up():
        farm.wait_ended(job)
    with Project(tmp_path) as project, project.change() as db:
        db._connection.execute("UPDATE job SET reason = 'x' || char(27) || '[31m' || char(7)")
    program = [sys.executable, "-m", "pilotage", "explain", str(job), "--project", str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(SRC)}
    said = subprocess.run(program, env=env, check=True, capture_output=True, text=True).stdout
    assert "x\\x1b[31m\\x07" in said
    assert "\x1b" not in said


def _sites(farm: SiteProject) -> list[tuple[object, ...]]:
    with Project(farm.root) as project, project.change() as db:
        return db.rows("site_all")
