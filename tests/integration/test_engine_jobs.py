"""What becomes of jobs: retries, limits, time-outs, people's wishes, dependencies, recipes."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import anyio
import pytest

from pilotage.base import errors
from pilotage.hub.project import Project
from pilotage.job.model import (
    Command,
    Job,
    JobSpec,
    Limit,
    NewJob,
    Python,
    Resources,
    Retry,
    Script,
    State,
)
from tests.rigs.project.project import Rig


def job(*argv: str, name: str = "j", **more: object) -> JobSpec:
    return JobSpec(recipe=Command(argv), name=name, **more)  # type: ignore[arg-type]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def finish(rig: Rig, *specs: JobSpec, **more: object) -> list[Job]:
    async with rig.live() as project:
        for spec in specs:
            project.submit(NewJob(spec, **more))  # type: ignore[arg-type]
        return await rig.ended(len(specs))


async def test_how_jobs_end(rig: Rig) -> None:
    jobs = await finish(
        rig,
        job("true", name="good"),
        job("sh", "-c", "exit 3", name="three"),
        job("sh", "-c", "exit 3", name="fine", ok_codes=(0, 3)),
        job("sh", "-c", "kill -SEGV $$", name="segv"),
        job("no-such-program", name="missing"),
        job("true", name="forgetful", outputs={"out": "not-there"}),
        job("sleep", "60", name="slow", resources=Resources(time=0.3)),
    )
    ends = {one.name: (one.state, one.reason) for one in jobs}
    assert ends["good"] == (State.DONE, "")
    assert ends["three"] == (State.FAILED, "exited with code 3")
    assert ends["fine"] == (State.DONE, "")
    assert ends["segv"][0] is State.FAILED
    assert "SIGSEGV" in ends["segv"][1]
    assert "no-such-program" in ends["missing"][1]
    assert ends["forgetful"][1] == f"declared output is missing: {rig.root}/not-there"
    assert "time limit" in ends["slow"][1]


async def test_memory_limit_and_usage(rig: Rig) -> None:
    hungry = "x = bytearray(300_000_000); import time; time.sleep(30)"
    busy = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    jobs = await finish(
        rig,
        JobSpec(Python(source=hungry), "hungry", resources=Resources(memory=100_000_000)),
        JobSpec(Python(source=busy), "busy"),
    )
    assert jobs[0].state is State.FAILED
    assert "memory" in jobs[0].reason
    with rig.project() as project:
        (attempt,) = project.attempts(jobs[1].id)
    assert attempt.cpu is not None
    assert attempt.cpu >= 0.2
    assert attempt.max_rss
    assert attempt.wall


async def test_retries_with_back_off(rig: Rig) -> None:
    flaky = 'test -e "$0" || {{ touch "$0"; exit 1; }}'
    flag = str(rig.root / "flag")
    retry = Retry(attempts=3, delay=0.2)
    good, bad = await finish(
        rig,
        job("sh", "-c", flaky, flag, name="flaky", retry=retry),
        job("false", name="hopeless", retry=retry),
    )
    assert (good.state, good.attempt) == (State.DONE, 2)
    assert (bad.state, bad.attempt) == (State.FAILED, 3)
    with rig.project() as project:
        tries = project.attempts(bad.id)
    waits = [after.started - (before.ended or 0) for before, after in itertools.pairwise(tries)]
    assert waits[0] >= 0.19
    assert waits[1] >= 0.39


async def test_cancel_hold_release_retry(rig: Rig) -> None:
    async with rig.live() as project:
        running = project.submit(NewJob(job("sleep", "60")))
        await rig.until(lambda: rig.jobs("*", State.RUNNING))
        held = project.submit(NewJob(job("true"), state=State.HELD, reason="for the test"))
        project.cancel([running])
        await rig.ended(1)
        assert project.job(running).state is State.CANCELLED
        assert project.job(running).reason
        assert project.release([held]) == {held: State.QUEUED}
        await rig.ended(2)
        assert project.job(held).state is State.DONE
        with pytest.raises(errors.IllegalTransition):
            project.cancel([held])
        with pytest.raises(errors.IllegalTransition):
            project.retry([held])
        project.retry([running])
        await rig.until(lambda: project.job(running).state is State.RUNNING)
        project.hold([running])
        await rig.until(lambda: project.job(running).state is State.HELD)
        assert project.job(running).attempt == 2


async def test_dependencies(rig: Rig) -> None:
    async with rig.live() as project:
        first = project.submit(NewJob(job("sleep", "0.3")))
        bad = project.submit(NewJob(job("sh", "-c", "sleep 0.3; exit 1")))
        second = project.submit(NewJob(job("true"), after=(first,)))
        third = project.submit(NewJob(job("true"), after=(second, bad)))
        fourth = project.submit(NewJob(job("true"), after=(third,)))
        assert project.job(second).state is State.WAITING
        await rig.ended(5)
        assert project.job(second).state is State.DONE
        for number in (third, fourth):
            assert project.job(number).state is State.CANCELLED
        assert project.job(third).reason == f"job {bad}, which it was to follow, is failed"
        late = project.submit(NewJob(job("true"), after=(bad,)))
        assert project.job(late).state is State.CANCELLED
        with pytest.raises(errors.NotFound):
            project.submit(NewJob(job("true"), after=(999,)))


async def test_priorities_and_limits(tmp_path: Path) -> None:
    rig = Rig(tmp_path, settings="[site]\ncpus = 2\n")
    with rig.project() as project:
        for _ in range(4):
            one = job("sleep", "0.2", name="limited", limit=Limit("camera"))
            project.submit(NewJob(one, limit_key="camera:1"))
        low = project.submit(NewJob(job("true", name="low")))
        high = project.submit(NewJob(job("true", name="high", priority=9)))
    async with rig.live() as project:
        await rig.ended(6)
        assert (project.job(high).started or 0) <= (project.job(low).started or 0)
    limited = sorted(rig.jobs("limited"), key=lambda one: one.started or 0)
    for before, after in itertools.pairwise(limited):
        assert (before.ended or 0) <= (after.started or 0) + 0.001


async def test_a_job_that_never_fits_does_not_stop_the_others(tmp_path: Path) -> None:
    rig = Rig(tmp_path, settings="[site]\ncpus = 2\n")
    with rig.project() as project:
        huge = job("true", name="huge", resources=Resources(cpus=64))
        for _ in range(200):
            project.submit(NewJob(huge))
        project.submit(NewJob(job("true", name="small")))
        project.submit(NewJob(job("true", name="pair", resources=Resources(cpus=2))))
    async with rig.live():
        await rig.ended(2)
    assert {one.name for one in rig.jobs("*", State.DONE)} == {"small", "pair"}


NOTEBOOK = {
    "cells": [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": "a",
            "metadata": {"tags": ["parameters"]},
            "outputs": [],
            "source": "level = 0\ninfile = ''",
        },
        {
            "cell_type": "code",
            "execution_count": None,
            "id": "b",
            "metadata": {},
            "outputs": [],
            "source": "print('got', level, infile.rsplit('/', 1)[-1])",
        },
    ],
    "metadata": {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    },
    "nbformat": 4,
    "nbformat_minor": 5,
}


async def test_every_kind_of_recipe(tmp_path: Path) -> None:
    pytest.importorskip("papermill")
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "fit.ipynb").write_text(json.dumps(NOTEBOOK))
    (rules / "clean.sh").write_text('#!/usr/bin/env bash\necho "script $level $PILOTAGE_NAME"\n')
    (rules / "steps.py").write_text("def step(path, level):\n    return {'twice': level * 2}\n")
    common = 'files = "raw/*"\nparams = { level = 21, infile = "{path}" }\n'
    rig = Rig(
        tmp_path,
        f'[rule.argv]\n{common}run = ["echo", "argv", "{{level}}", "{{rel}}"]\n'
        f'[rule.script]\n{common}script = "clean.sh"\n'
        f'[rule.inline]\n{common}script = """\nimport json, os\n'
        'print("inline", json.load(open(os.environ["PILOTAGE_PARAMS"]))["level"])\n"""\n'
        'interpreter = ["python3"]\n'
        f'[rule.python]\n{common}python = "steps.py:step"\n'
        f'[rule.notebook]\n{common}notebook = "fit.ipynb"\n'
        f'[rule.app]\n{common}app = "greet"\nargs = ["{{name}}"]\n',
        '[app.greet]\nargv = ["echo", "hello"]\n',
    )
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a b").write_text("x")
    async with rig.live():
        await rig.ended(6)
    said = {one.name: rig.output(one).strip() for one in rig.jobs()}
    ends = {one.name: (one.state, one.reason) for one in rig.jobs()}
    kinds = ("argv", "script", "inline", "python", "notebook", "app")
    assert ends == dict.fromkeys(kinds, (State.DONE, ""))
    assert said["argv"] == "argv 21 raw/a b"
    assert said["script"] == "script 21 a b"
    assert said["inline"] == "inline 21"
    assert said["app"] == "hello a b"
    (python,) = rig.jobs("python")
    assert json.loads(rig.output(python, "result.json")) == {"twice": 42}
    (notebook,) = rig.jobs("notebook")
    assert "got 21 a b" in rig.output(notebook, "result.ipynb")


async def test_nothing_outlives_its_job(rig: Rig) -> None:
    left = rig.root / "left"
    escape = f"(setsid sh -c 'echo $$ > {left}.part; mv {left}.part {left}; exec sleep 600' &)"
    script = f"{escape}\nwhile [ ! -e {left} ]; do sleep 0.05; done\n"
    await finish(rig, JobSpec(Script(source=script), "escape"))
    process = Path(f"/proc/{left.read_text().strip()}/cmdline")
    await rig.until(lambda: not process.exists() or not process.read_bytes())


async def test_jobs_may_linger_and_are_adopted(tmp_path: Path) -> None:
    rig = Rig(tmp_path, settings='[site]\non_exit = "linger"\n')
    async with rig.live() as project:
        number = project.submit(NewJob(job("sh", "-c", "sleep 1; echo done")))
        await rig.until(lambda: rig.jobs("*", State.RUNNING))
    assert [one.state for one in rig.jobs()] == [State.RUNNING]
    async with rig.live() as project:
        await rig.ended(1)
        assert project.job(number).state is State.DONE
        assert project.job(number).attempt == 1
    assert rig.output(rig.jobs()[0]) == "done\n"


async def test_retention_forgets_and_does_not_repeat(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a").write_text("x")
    rules = '[rule.r]\nfiles = "raw/*"\nrun = ["true"]\nparams = {{ n = {} }}\n'
    rig = Rig(tmp_path, rules.format(1))
    async with rig.live():
        await rig.ended(1)
    with rig.project() as project:
        folder = Path(project.attempts(1)[0].dir)
    (tmp_path / "pilotage.toml").write_text('[retention]\nkeep = "0s"\n')
    async with rig.live():
        await rig.until(lambda: not rig.jobs() and not folder.exists())
        rig.rules(rules.format(2))
        await anyio.sleep(1.5)
    assert rig.jobs() == [], "a changed rule does not repeat what was done and forgotten"


def test_the_same_key_is_refused(rig: Rig) -> None:
    with rig.project() as project:
        project.submit(NewJob(job("true"), key="0" * 32))
        with pytest.raises(errors.Conflict):
            project.submit(NewJob(job("true"), key="0" * 32))


def test_there_is_no_project(tmp_path: Path) -> None:
    with pytest.raises(errors.NoProject):
        Project.find(Path(os.path.realpath(tmp_path)))


async def test_one_job_after_another_is_over_at_once_though_nothing_else_happens(tmp_path):
    async with Rig(tmp_path).live() as project:
        for _ in range(150):
            number = project.submit(NewJob(JobSpec(Command(("true",)), "true")))
            with anyio.fail_after(10):
                while project.job(number).state is not State.DONE:  # noqa: ASYNC110 - a store
                    await anyio.sleep(0.001)


async def test_jobs_that_run_together_are_lent_different_gpus(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    show = Command(("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"; sleep 0.5'))
    rig = Rig(tmp_path, settings="[site]\ncpus = 4\ngpus = 3\n")
    async with rig.live() as project:
        wants = [Resources(gpus=2), Resources(gpus=1), Resources(gpus=1), Resources()]
        jobs = [project.submit(NewJob(JobSpec(show, "show", resources=one))) for one in wants]
        await rig.until(lambda: len(rig.jobs("show", State.DONE)) == 4)
        files = [anyio.Path(project.attempts(job)[0].dir, "stdout") for job in jobs]
        shown = [(await file.read_text()).strip() for file in files]
    assert sorted(shown[0].split(",") + shown[1].split(",")) == ["0", "1", "2"]
    assert (shown[2] in {"0", "1", "2"}, shown[3]) == (True, "")
