"""The pilot program with the real hub: jobs, restarts of the hub, and kills."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator

import pytest

from pilotage.job.model import Binding, Call, JobSpec, NewJob, Python, State
from tests.rigs.node.real_hub import RealHub, enrolled, running
from tests.rigs.node.scripted_hub import wait_for


@pytest.fixture
def real(tmp_path) -> Iterator[RealHub]:
    with running(tmp_path / "project") as hub:
        yield hub


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[RealHub]:
    """One hub for tests whose pilots have left when they end."""
    with running(tmp_path_factory.mktemp("shared") / "project") as hub:
        yield hub


@pytest.mark.needs("bwrap")
def test_functions_run_in_the_sandbox_that_a_hub_takes_by_itself(tmp_path):
    settings = 'heartbeat = "1s"\nlease = "20s"\nenv = { FROM_HUB = "yes" }\n'
    with (
        running(tmp_path / "project", pilots=settings) as real,
        enrolled(real, tmp_path / "p") as one,
    ):
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


def test_jobs_run_on_a_pilot_and_their_words_arrive(shared, tmp_path):
    with enrolled(shared, tmp_path / "p") as one:
        jobs = [shared.submit("sh", "-c", f"echo hello {number}") for number in range(20)]
        bad = shared.submit("false")
        shared.wait(*jobs, bad)
        assert {shared.state(job) for job in jobs} == {State.DONE}
        assert shared.state(bad) is State.FAILED
        assert [shared.output(job) for job in jobs] == [f"hello {n}\n" for n in range(20)]
        one.terminate()
        assert one.status() == 0


def test_functions_return_results_from_a_pilot(shared, tmp_path):
    with enrolled(shared, tmp_path / "p") as one:
        source = "def f(x=1):\n    return {'twice': 2 * x}\n"
        once = shared.project.submit(NewJob(JobSpec(Python(source=source, function="f"), "once")))
        shared.wait(once)
        assert shared.state(once) is State.DONE
        assert shared.project.db.value("result_get", job=once) == '{"twice":2}'
        one.terminate()
        assert one.status() == 0


def test_a_hub_that_is_killed_again_and_again_loses_nothing(real, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    with enrolled(real, tmp_path / "p") as one:
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
    flag = tmp_path / "flag"
    quick = 'heartbeat = "0.5s"\nlease = "3s"\nsandbox = "none"\n'
    with running(tmp_path / "project", pilots=quick) as real:
        with enrolled(real, tmp_path / "one") as one:
            job = real.submit("sh", "-c", f"test -e {flag} && exit 0; touch {flag}; sleep 1000")
            wait_for(flag.exists)
            os.kill(one.process.pid, signal.SIGKILL)
            with enrolled(real, tmp_path / "two"):
                real.wait(job)
        assert real.state(job) is State.DONE


def test_a_pilot_told_to_end_gives_its_job_back(shared, tmp_path):
    flag = tmp_path / "flag"
    with enrolled(shared, tmp_path / "one") as one:
        job = shared.submit("sh", "-c", f"test -e {flag} && exit 0; touch {flag}; sleep 1000")
        wait_for(flag.exists)
        one.terminate()
        assert one.status() == 0
    with enrolled(shared, tmp_path / "two") as two:
        shared.wait(job)
        two.terminate()
        assert two.status() == 0
    assert shared.state(job) is State.DONE
