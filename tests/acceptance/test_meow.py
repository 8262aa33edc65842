"""Scripts of MEOW, run as their authors wrote them but for the imports."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

import pilotage
from pilotage.base import errors
from pilotage.compat import meow
from testbed.ports import free_port
from tests.suite.programs import PATIENCE

EXAMPLE = """
import glob, os, time
from pilotage.compat.meow import FileEventPattern, WatchdogMonitor
from pilotage.compat.meow import BashRecipe, BashHandler
from pilotage.compat.meow import LocalBashConductor
from pilotage.compat.meow import MeowRunner
from pilotage.compat.meow import create_parameter_sweep
os.makedirs("data/raw", exist_ok=True); os.makedirs("data/clean", exist_ok=True)
clean = FileEventPattern("clean", "raw/*.csv", "cleaner", "infile",
            parameters={"out": "{BASE}/clean/{PREFIX}"},
            sweep=create_parameter_sweep("level", 1, 3, 1))
count = FileEventPattern("count", "clean/*", "counter", "infile")
cleaner = BashRecipe("cleaner", ["#!/bin/bash", "infile=x", "out=x", "level=0",
            'head -n $level "$infile" > "$out.$level.csv"'])
counter = BashRecipe("counter", ["#!/bin/bash", "infile=x", 'wc -l "$infile"'])
runner = MeowRunner(
    WatchdogMonitor("data", {p.name: p for p in (clean, count)},
                    {r.name: r for r in (cleaner, counter)}, settletime=1),
    BashHandler(pause_time=1), [LocalBashConductor(pause_time=1) for _ in range(2)])
runner.start()
open("data/raw/a.csv", "w").write("1\\n2\\n3\\n4\\n")
while len(glob.glob("job_output/job_*/job.yml")) < 6: time.sleep(0.1)
time.sleep(2); runner.stop()
"""

ODD = [
    "it's $(echo INJECTED)",
    'say "hi"; rm -rf x',
    "two\nlines",
    "`id`",
    "{PATH} is not {path}",
    "\\n\\",
    "",
    " ü ",
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    return tmp_path


class Lab:
    """A runner on the folder `data`, with one handler and conductor of each kind."""

    def __init__(self, *monitors: Any) -> None:
        self.monitors = monitors
        self.runner = meow.MeowRunner(
            list(monitors),
            [meow.BashHandler(), meow.PythonHandler(), meow.PapermillHandler()],
            [meow.LocalBashConductor(), meow.LocalPythonConductor()],
        )

    def __enter__(self) -> Self:
        self.runner.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.stop()

    def jobs(self, pattern: str = "") -> list[dict[str, Any]]:
        """Read what is in the output folder, in the order of the jobs."""
        found = []
        for folder in Path("job_output").glob("job_*"):
            facts = json.loads((folder / "job.yml").read_bytes())
            read = {file.name: file.read_text() for file in folder.iterdir()}
            found.append({**facts, "number": int(folder.name[4:]), "files": read})
        found.sort(key=lambda facts: facts["number"])
        return [facts for facts in found if not pattern or facts["pattern"] == pattern]

    def wait(self, count: int, pattern: str = "") -> list[dict[str, Any]]:
        """Wait until so many jobs have ended."""
        until(lambda: len(self.jobs(pattern)) >= count)
        return self.jobs(pattern)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def watch(
    *patterns: meow.FileEventPattern, recipes: Any = (), settletime: float = 0, base: str = "data"
) -> meow.WatchdogMonitor:
    return meow.WatchdogMonitor(
        base,
        {one.name: one for one in patterns},
        {one.name: one for one in recipes},
        settletime=settletime,
    )


def on(path: str, recipe: str, name: str = "", **more: Any) -> meow.FileEventPattern:
    return meow.FileEventPattern(name or recipe, path, recipe, "infile", **more)


def bash(name: str, *lines: str) -> meow.BashRecipe:
    return meow.BashRecipe(name, list(lines))


def play(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(pilotage.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


# -- as a user -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_example_runs_unchanged_but_for_its_imports(tmp_path: Path):
    run = play(EXAMPLE, tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    clean = sorted(file.name for file in (tmp_path / "data" / "clean").iterdir())
    assert clean == ["a.1.csv", "a.2.csv", "a.3.csv"]
    jobs = [json.loads(file.read_text()) for file in tmp_path.glob("job_output/job_*/job.yml")]
    assert sorted(job["pattern"] for job in jobs) == ["clean"] * 3 + ["count"] * 3
    assert {job["status"] for job in jobs} == {"done"}
    said = [file.read_text().split()[0] for file in tmp_path.glob("job_output/*/stdout.txt")
            if file.read_text()]  # fmt: skip
    assert sorted(said) == ["1", "2", "3"]


def test_what_a_job_leaves(here: Path):
    needs = meow.create_python_requirements("numpy")
    recipe = meow.BashRecipe("show", ["infile=x", 'cat "$infile"', "echo no >&2"], {}, needs)
    with Lab(watch(on("*", "show", parameters={"n": [1, "{"]}), recipes=[recipe])) as lab:
        (here / "data" / "a").write_text("hello")
        (job,) = lab.wait(1)
    assert set(job["files"]) == {"job.yml", "stdout.txt", "stderr.txt", "recipe.sh"}
    assert (job["files"]["stdout.txt"], job["files"]["stderr.txt"]) == ("hello", "no\n")
    assert (job["id"], job["job_type"], job["status"]) == ("job_1", "bash", "done")
    assert (job["pattern"], job["recipe"], job["rule"]) == ("show", "show", "rule_show")
    assert job["parameters"] == {"n": [1, "{"], "infile": str(here / "data" / "a")}
    assert job["requirements"] == needs
    assert job["event"]["event_path"] == str(here / "data" / "a")
    assert job["event"]["event_type"] == "file_closed"
    assert job["event"]["monitor_base"] == str(here / "data")
    assert job["event"]["file_hash"].startswith("2cf24dba")
    assert job["create"] <= job["start"] <= job["end"]


def test_a_job_that_fails(here: Path):
    with Lab(watch(on("*", "bad"), recipes=[bash("bad", "exit 3")])) as lab:
        (here / "data" / "a").write_text("x")
        (job,) = lab.wait(1)
    assert job["status"] == "failed"
    assert "3" in job["error"]


def test_keywords_reach_the_recipe(here: Path):
    text = "{PATH}|{REL_PATH}|{DIR}|{REL_DIR}|{FILENAME}|{PREFIX}|{EXTENSION}|{BASE}|{JOB}"
    one = on("*/*", "show", parameters={"all": text})
    (here / "data" / "in").mkdir()
    with Lab(watch(one, recipes=[bash("show", "all=0", 'echo "$all"; pwd')])) as lab:
        (here / "data" / "in" / "a.b.csv").write_text("x")
        (job,) = lab.wait(1)
    data = here / "data"
    assert job["files"]["stdout.txt"] == (
        f"{data}/in/a.b.csv|in/a.b.csv|{data}/in|in|a.b.csv|a.b|.csv|{data}|job_1\n{here}\n"
    )


@pytest.mark.parametrize("settletime", [0, 0.5])
def test_a_sweep_of_two_variables(here: Path, settletime: float):
    sweep = meow.create_parameter_sweep("a", 1, 3, 1) | meow.create_parameter_sweep("b", 0, 1, 0.25)
    show = bash("show", "a=", "b=", 'echo "$a $b"')
    with Lab(watch(on("*", "show", sweep=sweep), recipes=[show], settletime=settletime)) as lab:
        (here / "data" / "x").write_text("x")
        jobs = lab.wait(15)
    found = {job["files"]["stdout.txt"].strip() for job in jobs}
    assert found == {f"{a} {b}" for a in (1, 2, 3) for b in (0.0, 0.25, 0.5, 0.75, 1.0)}


def test_linked_jobs(here: Path):
    first = meow.PythonRecipe(
        "first",
        [
            "import os",
            "infile = 'nothing'",
            "out = 'nowhere'",
            "with open(infile) as file:",
            "    text = file.read()",
            "os.makedirs(os.path.dirname(out), exist_ok=True)",
            "with open(out, 'w') as file:",
            "    file.write(text.upper())",
        ],
    )
    second = bash("second", "infile=none", 'cat "$infile"')
    patterns = (
        on("raw/*", "first", outputs={"out": "data/done/{FILENAME}"}),
        on("done/*", "second"),
    )
    (here / "data" / "raw").mkdir()
    with Lab(watch(*patterns, recipes=[first, second])) as lab:
        (here / "data" / "raw" / "a").write_text("hello")
        (job,) = lab.wait(1, "second")
    assert job["files"]["stdout.txt"] == "HELLO"


# -- values --------------------------------------------------------------------------------------


def test_odd_values_reach_bash_as_they_are(here: Path):
    values = {f"v{number}": value for number, value in enumerate(ODD)}
    lines = [f"v{number}='default'" for number in range(len(ODD))]
    lines += [f"printf '%s\\0' \"$v{number}\"" for number in range(len(ODD))]
    with Lab(watch(on("*", "show", parameters=values), recipes=[bash("show", *lines)])) as lab:
        (here / "data" / "it's $(touch oops)").write_text("x")
        (job,) = lab.wait(1)
    wanted = [value.replace("{PATH}", f"{here}/data/it's $(touch oops)") for value in ODD]
    assert job["files"]["stdout.txt"].split("\0")[:-1] == wanted
    assert sorted(path.name for path in here.iterdir()) == ["data", "job_output", "job_queue"]


def test_odd_values_reach_python_with_their_types(here: Path):
    values = {"text": ODD[0], "more": [1, None, {"a": True}], "half": 0.5, "url": "y"}
    source = """
        import json
        text = 'x'; half = (
            0
        )
        if __name__ == '__main__':
            more = None
        def f():
            url = 1
            return url
        url = 'x?a=b'
        print(json.dumps([text, more, half, url, f()]))
    """
    recipe = meow.PythonRecipe("show", textwrap.dedent(source).splitlines())
    with Lab(watch(on("*", "show", parameters=values), recipes=[recipe])) as lab:
        (here / "data" / "a").write_text("x")
        (job,) = lab.wait(1)
    said = json.loads(job["files"]["stdout.txt"])
    assert said == [ODD[0], [1, None, {"a": True}], 0.5, "y", 1]
    assert "recipe.py" in job["files"]


def test_notebooks(here: Path):
    pytest.importorskip("papermill")
    notebook = {
        "cells": [
            {
                "cell_type": "code",
                "id": "a",
                "execution_count": None,
                "metadata": {},
                "outputs": [],
                "source": ["word = 'default'\n", "infile = ''\n"],
            },
            {
                "cell_type": "code",
                "id": "b",
                "execution_count": None,
                "metadata": {},
                "outputs": [],
                "source": "open(infile + '.out', 'w').write(word * number)",
            },
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    Path("count.ipynb").write_text(json.dumps(notebook))
    recipe = meow.get_recipe_from_notebook("count", "count.ipynb")
    one = on("*.txt", "count", parameters={"word": 'it\'s "$(x)"\n', "number": 2})
    with Lab(watch(one, recipes=[recipe])) as lab:
        (here / "data" / "a.txt").write_text("x")
        (job,) = lab.wait(1)
    assert job["status"] == "done", job["files"]["stderr.txt"]
    assert (here / "data" / "a.txt.out").read_text() == 2 * 'it\'s "$(x)"\n'
    assert {"recipe.ipynb", "result.ipynb"} <= set(job["files"])


# -- messages ------------------------------------------------------------------------------------


@pytest.fixture
def ports() -> list[int]:
    """Choose ports; MEOW allows what is below 49152."""
    return [free_port(), free_port()]


def send(port: int, text: str) -> None:
    def connect() -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port)) as one:
                one.sendall(text.encode())
                one.shutdown(socket.SHUT_WR)
                return one.recv(100).startswith(b"ok")
        except ConnectionRefusedError:
            return False

    until(connect)


def test_messages(here: Path, ports: list[int]):
    patterns = {
        name: meow.SocketPattern(name, ports[0], "show", "msg") for name in ("one", "other")
    }
    recipe = bash("show", "msg=none", 'cat "$msg"')
    monitor = meow.SocketMonitor("data", patterns, {"show": recipe})
    with Lab(monitor) as lab:
        send(ports[0], "first")
        send(ports[0], "second")
        lab.wait(4)
        monitor.add_pattern(meow.SocketPattern("late", ports[1], "show", "msg"))
        send(ports[1], "third")
        lab.wait(1, "late")
    for name in ("one", "other"):
        said = {job["files"]["stdout.txt"] for job in lab.jobs(name)}
        assert said == {"first", "second"}
    assert [job["files"]["stdout.txt"] for job in lab.jobs("late")] == ["third"]


@pytest.mark.slow
def test_a_port_that_is_taken_is_waited_for(here: Path, ports: list[int]):
    pattern = meow.SocketPattern("p", ports[0], "show", "msg")
    monitor = meow.SocketMonitor("data", {"p": pattern}, {"show": bash("show", "true")})
    taken = socket.create_server(("127.0.0.1", ports[0]))
    with Lab(monitor) as lab:
        taken.close()
        send(ports[0], "hello")
        lab.wait(1)


# -- while it runs -------------------------------------------------------------------------------


def test_rules_are_edited_while_it_runs(here: Path):
    (here / "data" / "old").write_text("x")
    monitor = watch(on("*", "say"), recipes=[])
    with Lab(monitor) as lab:
        monitor.add_recipe(bash("say", "echo one"))
        (first,) = lab.wait(1)
        monitor.update_recipe(bash("say", "echo two"))
        lab.wait(2)
        (here / "data" / "new").write_text("x")
        lab.wait(3)
        monitor.add_pattern(on("*", "say", "again"))
        lab.wait(2, "again")
        monitor.remove_pattern("again")
        monitor.update_pattern(on("*.dat", "say"))
        (here / "data" / "c").write_text("x")
        (here / "data" / "d.dat").write_text("x")
        lab.wait(6)
        monitor.remove_recipe("say")
        (here / "data" / "e.dat").write_text("x")
        time.sleep(0.5)
    assert first["files"]["stdout.txt"] == "one\n"
    names = [
        (Path(job["event"]["event_path"]).name, job["pattern"], job["files"]["stdout.txt"].strip())
        for job in lab.jobs()
    ]
    assert sorted(names) == [
        ("d.dat", "say", "two"),
        ("new", "again", "two"),
        ("new", "say", "two"),
        ("old", "again", "two"),
        ("old", "say", "one"),
        ("old", "say", "two"),
    ]


def test_no_event_is_lost_while_rules_are_edited(here: Path):
    mask = [meow.FILE_CLOSED_EVENT]
    monitor = watch(on("*", "say", event_mask=mask), recipes=[bash("say", "true")], settletime=0.1)
    with Lab(monitor) as lab:
        for number in range(60):
            (here / "data" / str(number)).write_text("x")
            if number % 10 == 0:
                monitor.update_recipe(bash("say", f"echo {number}"))
        jobs = lab.wait(60)
    found = sorted(int(Path(job["event"]["event_path"]).name) for job in jobs)
    assert found == list(range(60))


def test_a_bad_edit_changes_nothing(here: Path):
    monitor = watch(on("*", "say"), recipes=[bash("say", "true")])
    with Lab(monitor) as lab:
        with pytest.raises(ValueError, match="together"):
            monitor.update_recipe(meow.PythonRecipe("say", ["infile, x = 1, 2"]))
        (here / "data" / "a").write_text("x")
        (job,) = lab.wait(1)
    assert job["job_type"] == "bash"


def test_stop_and_start_repeat_nothing_and_lose_nothing(here: Path):
    lab = Lab(watch(on("*", "say"), recipes=[bash("say", "sleep 0.3", "echo hello")]))
    (here / "data" / "before").write_text("x")
    lab.runner.start()
    with pytest.raises(RuntimeError):
        lab.runner.start()
    lab.wait(1)
    for number in range(6):
        (here / "data" / str(number)).write_text("x")
    until(lambda: len(lab.jobs()) >= 2)
    lab.runner.stop()
    (here / "data" / "while stopped").write_text("x")
    again = Lab(watch(on("*", "say"), recipes=[bash("say", "sleep 0.3", "echo hello")]))
    for one in (lab, again):
        with one:
            one.wait(8)
    names = sorted(Path(job["event"]["event_path"]).name for job in again.jobs())
    assert names == ["0", "1", "2", "3", "4", "5", "before", "while stopped"]
    assert {job["status"] for job in again.jobs()} == {"done"}


def test_stop_waits_for_what_runs_unless_told_otherwise(here: Path):
    slow = bash("slow", "touch data/started", "sleep 1", "echo done")
    lab = Lab(watch(on("*.in", "slow"), recipes=[slow]))
    lab.runner.start()
    (here / "data" / "a.in").write_text("x")
    until((here / "data" / "started").exists)
    lab.runner.stop()
    assert [job["files"]["stdout.txt"] for job in lab.jobs()] == ["done\n"]
    (here / "data" / "started").unlink()
    lab.runner.start()
    (here / "data" / "b.in").write_text("x")
    until((here / "data" / "started").exists)
    lab.runner.stop(wait=False)
    assert len(lab.jobs()) == 1
    with lab:
        assert len(lab.wait(2)) == 2


def test_results_that_a_killed_runner_did_not_write_are_written_later(here: Path):
    script = f"""
        import os, time
        from pilotage.compat.meow import *
        from pilotage.compat.meow import engine
        def die(db, folder):
            if db.rows("journal_ends", after=0):
                os.kill(os.getpid(), 9)
        engine.deliver = die
        say = FileEventPattern("say", "*", "say", "infile")
        MeowRunner(WatchdogMonitor("data", {{"say": say}}, {{"say": BashRecipe("say", ["true"])}},
            settletime=0), BashHandler(), LocalBashConductor()).start()
        time.sleep({PATIENCE})
    """
    (here / "data" / "a").write_text("x")
    killed = play(textwrap.dedent(script), here)
    assert killed.returncode == -9
    assert not list((here / "job_output").iterdir())
    with Lab(watch(on("*", "say"), recipes=[bash("say", "true")])) as lab:
        lab.wait(1)
    assert [job["status"] for job in lab.jobs()] == ["done"]


def test_one_runner_at_a_time(here: Path):
    with Lab(watch()), pytest.raises(errors.AlreadyRunning), Lab(watch()):
        pass


def test_what_is_printed(here: Path, capsys: pytest.CaptureFixture[str]):
    recipes = {"say": bash("say", "true")}
    monitor = meow.WatchdogMonitor("data", {}, recipes, settletime=0, logging=4)
    with Lab(monitor) as lab:
        monitor.add_pattern(on("*", "say"))
        (here / "data" / "a").write_text("x")
        lab.wait(1)
    assert "data/say" in capsys.readouterr().out


def test_no_more_jobs_of_a_kind_than_conductors_run_at_once(here: Path):
    line = 'echo "$(date +%s.%N)"; sleep 0.2; echo "$(date +%s.%N)"'
    with Lab(watch(on("*", "time"), recipes=[bash("time", line)])) as lab:
        for number in range(4):
            (here / "data" / str(number)).write_text("x")
        jobs = lab.wait(4)
    spans = sorted(tuple(map(float, job["files"]["stdout.txt"].split())) for job in jobs)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
