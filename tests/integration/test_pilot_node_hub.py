"""The pilot program with the real hub: jobs, restarts of the hub, and kills."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pilotage.hub import auth
from pilotage.hub.project import Project
from pilotage.job import machine
from pilotage.job.model import Binding, Call, Command, JobSpec, NewJob, Python, State
from tests.scripted_hub import pilot, wait_for

_HUB = """
import sys
from pathlib import Path
import anyio
from pilotage.hub import wiring
from pilotage.hub.project import Project

async def main():
    with Project(Path(sys.argv[1])) as project:
        await wiring.up(project, local=False, serve=lambda _: None)

anyio.run(main)
"""


class Real:
    """A project with a hub that can be killed and started again."""

    def __init__(self, root: Path, settings: str = "") -> None:
        root.mkdir()
        # The same after a restart, and below those that the kernel gives to others.
        port = random.randrange(20000, 30000)
        (root / "pilotage.toml").write_text(f"[hub]\nport = {port}\n[pilots]\n{settings}")
        self.project = Project(root)
        self.root = root
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> Path:
        return self.project.state / "hub.json"

    @property
    def url(self) -> str:
        import msgspec

        return str(msgspec.json.decode(self.address.read_bytes())["url"])

    def start(self) -> None:
        self.address.unlink(missing_ok=True)
        self.process = subprocess.Popen([sys.executable, "-c", _HUB, str(self.root)])
        wait_for(self.address.exists, 60)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def secret(self) -> str:
        now = time.time()
        with self.project._change() as db:
            return auth.mint(db, auth.Scope.ENROL, "me", now=now, lifetime=600, uses=1)[0]

    def submit(self, *argv: str, name: str = "job") -> int:
        return self.project.submit(NewJob(JobSpec(Command(argv), name)))

    def state(self, job: int) -> State:
        return self.project.job(job).state

    def wait(self, *jobs: int, seconds: float = 60) -> None:
        wait_for(lambda: all(self.state(job) in machine.FINAL for job in jobs), seconds)


@pytest.fixture
def real(tmp_path) -> Iterator[Real]:
    hub = Real(tmp_path / "project", 'heartbeat = "1s"\nlease = "20s"\nsandbox = "none"\n')
    hub.start()
    yield hub
    hub.kill()
    hub.project.close()


@pytest.mark.needs("bwrap")
def test_functions_run_in_the_sandbox_that_a_hub_takes_by_itself(tmp_path):
    settings = 'heartbeat = "1s"\nlease = "20s"\nenv = { FROM_HUB = "yes" }\n'
    real = Real(tmp_path / "project", settings)
    real.start()
    try:
        with _pilot(real, tmp_path / "p") as one:
            calls = Binding(data={"calls": [[[1], {}], [[2], {"y": 5}]]})
            spec = JobSpec(Call(source="def f(x, y=1):\n    return x + y\n", function="f"), "call")
            call = real.project.submit(NewJob(spec, calls))
            source = "import os\ndef f():\n    return [*os.listdir('..'), os.environ['FROM_HUB']]\n"
            look = real.project.submit(NewJob(JobSpec(Python(source=source, function="f"), "look")))
            real.wait(call, look)
            assert [real.project.job(job).reason for job in (call, look)] == ["", ""]
            found = json.loads(real.project.db.value("result_get", job=call))
            assert found["returns"] == [{"ok": 2}, {"ok": 7}]
            # Of the folder of jobs it sees its own alone.
            assert json.loads(real.project.db.value("result_get", job=look)) == [
                f"{look}.1",
                "yes",
            ]
            one.terminate()
            assert one.status() == 0
    finally:
        real.kill()
        real.project.close()


@contextmanager
def _pilot(hub: Real, base: Path, *words: str):
    secret = base.with_suffix(".secret")
    secret.write_text(hub.secret())
    with pilot(hub.url, base, *words, "--secret-file", str(secret)) as one:
        yield one


def test_jobs_run_on_a_pilot_and_their_words_arrive(real, tmp_path):
    with _pilot(real, tmp_path / "p") as one:
        jobs = [real.submit("sh", "-c", f"echo hello {number}") for number in range(20)]
        bad = real.submit("false")
        real.wait(*jobs, bad)
        assert {real.state(job) for job in jobs} == {State.DONE}
        assert real.state(bad) is State.FAILED
        said = list((real.project.state / "jobs").rglob("stdout"))
        assert len(said) == 20
        assert {path.read_text() for path in said} == {f"hello {n}\n" for n in range(20)}
        one.terminate()
        assert one.status() == 0


def test_functions_return_results_from_a_pilot(real, tmp_path):
    with _pilot(real, tmp_path / "p"):
        source = "def f(x=1):\n    return {'twice': 2 * x}\n"
        once = real.project.submit(NewJob(JobSpec(Python(source=source, function="f"), "once")))
        real.wait(once)
        assert real.state(once) is State.DONE
        assert real.project.db.value("result_get", job=once) == '{"twice":2}'


def test_a_hub_that_is_killed_again_and_again_loses_nothing(real, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    with _pilot(real, tmp_path / "p") as one:
        jobs = [
            real.submit("sh", "-c", f"echo x >> {marks}/{number}; sleep 0.2")
            for number in range(60)
        ]
        for _ in range(3):
            time.sleep(0.7)
            real.kill()
            time.sleep(0.3)
            real.start()
        real.wait(*jobs)
        assert {real.state(job) for job in jobs} == {State.DONE}
        # Each ran exactly once, although the hub died three times.
        assert {path.read_text() for path in marks.iterdir()} == {"x\n"}
        assert len(list(marks.iterdir())) == 60
        assert one.process.poll() is None


def test_a_pilot_that_is_killed_has_its_job_done_by_another(tmp_path):
    real = Real(tmp_path / "project", 'heartbeat = "0.5s"\nlease = "3s"\nsandbox = "none"\n')
    real.start()
    try:
        flag = tmp_path / "flag"
        with _pilot(real, tmp_path / "one") as one:
            job = real.submit("sh", "-c", f"test -e {flag} && exit 0; touch {flag}; sleep 1000")
            wait_for(flag.exists)
            os.kill(one.process.pid, signal.SIGKILL)
            with _pilot(real, tmp_path / "two"):
                real.wait(job)
        assert real.state(job) is State.DONE
    finally:
        real.kill()
        real.project.close()


def test_a_pilot_told_to_end_gives_its_job_back(real, tmp_path):
    flag = tmp_path / "flag"
    with _pilot(real, tmp_path / "one") as one:
        job = real.submit("sh", "-c", f"test -e {flag} && exit 0; touch {flag}; sleep 1000")
        wait_for(flag.exists)
        one.terminate()
        assert one.status() == 0
    with _pilot(real, tmp_path / "two"):
        real.wait(job)
    assert real.state(job) is State.DONE
