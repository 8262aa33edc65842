"""The first program of a batch job, as a process."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pilotage.node.login import program as login
from pilotage.run.outcome import read_evidence
from tests.rigs.node.login_helper import PACKAGE, Place, wait_for


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path / "root")


def given(place: Place, folder: str, data: bytes) -> dict[str, Any]:
    """Put an input beside an order that is to be written."""
    digest = hashlib.sha256(data).hexdigest()
    cached = place.root / "cache" / digest[:2] / digest
    cached.parent.mkdir(exist_ok=True)
    cached.write_bytes(data)
    cached.chmod(0o444)
    beside = place.root / "s" / folder / "in"
    beside.mkdir(parents=True, exist_ok=True)
    (beside / digest).hardlink_to(cached)
    return {"sha256": digest, "mode": 0o644}


def ordered(place: Place, key: str, *items: dict[str, Any]) -> Path:
    """Write an order where its inputs are already."""
    folder = place.root / "s" / key
    held = folder.with_name(f"{key}.in")
    if folder.exists():
        (folder / "in").rename(held)
        folder.rmdir()
    place.submit(key, *items)
    if held.exists():
        held.rename(folder / "in")
    return folder


@pytest.mark.parametrize("way", ["archive", "package"])
def test_it_runs_its_item_and_leaves_evidence(place, way):
    folder = place.submit("k", place.item("k", *place.noted("k", "pwd; echo bad >&2; exit 3")))
    program = PACKAGE if way == "package" else None
    done = place.run(folder, env={"SLURM_JOB_ID": "77"}, program=program)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
    assert (folder / "0/run/stdout").read_text() == f"{folder}/0/data\n"
    assert (folder / "0/run/stderr").read_text() == "bad\n"
    began, ended = place.told("k", "started"), place.told("k")
    for news in (began, ended):
        assert (news["key"], news["index"], news["attempt"]) == ("k", 0, "k-0.1")
        assert news["batch"] == "slurm:77"
    assert ended["outputs"] == {}
    evidence = read_evidence(json.dumps(ended["end"]).encode())
    assert (evidence.key, evidence.exit, evidence.reason) == ("k-0.1", 3, "exited")
    assert evidence.usage is not None
    assert evidence.usage.wall > 0
    assert place.runs("k") == 1
    assert not list((place.root / "news").glob(".*"))


def test_a_second_copy_touches_nothing(place):
    folder = place.submit("k", place.item("k", *place.noted("k")))
    assert place.run(folder).returncode == 0
    before = _all_of(place.root)
    again = place.run(folder)
    assert again.returncode == 0
    assert again.stdout.startswith("duplicate")
    assert _all_of(place.root) == before
    assert place.runs("k") == 1


def test_of_twenty_that_race_one_runs(place):
    folder = place.submit("k", place.item("k", *place.noted("k", "sleep 0.2")))
    racing = [place.start(folder) for _ in range(20)]
    said = [one.communicate(timeout=60)[0] for one in racing]
    assert sum(text.startswith("duplicate") for text in said) == 19
    assert [one.returncode for one in racing] == [0] * 20
    assert place.runs("k") == 1
    assert place.evidence("k")["exit"] == 0


@pytest.mark.parametrize(
    "env,index",
    [
        ({"SLURM_ARRAY_TASK_ID": "2"}, 2),
        ({"PBS_ARRAY_INDEX": "2"}, 2),
        ({"PBS_ARRAYID": "1"}, 1),
        ({"SGE_TASK_ID": "2"}, 1),
        ({"LSB_JOBINDEX": "3"}, 2),
        ({"PILOTAGE_INDEX": "1"}, 1),
        ({"PILOTAGE_INDEX": "1", "SLURM_ARRAY_TASK_ID": "2"}, 1),
        ({"SGE_TASK_ID": "undefined", "LSB_JOBINDEX": "0", "PILOTAGE_INDEX": "0"}, 0),
    ],
)
def test_it_knows_its_number_in_an_array(place, env, index):
    folder = place.submit("k", *(place.item("k", *place.noted("k"), index=i) for i in range(3)))
    assert place.run(folder, env=env).returncode == 0
    assert place.told("k", index=index)["attempt"] == f"k-{index}.1"
    assert [one.name for one in sorted(folder.glob("*.claim"))] == [f"{index}.claim"]


def test_without_an_order_nothing_happens(place):
    three = place.submit("k", *(place.item("k", "true", index=i) for i in range(3)))
    alone = place.submit("one", place.item("one", "true"))
    broken = place.root / "s" / "broken"
    broken.mkdir()
    (broken / "order.json").write_text('{"items": [{}]}')
    for folder, env in (
        (three, {}),
        (three, {"SLURM_ARRAY_TASK_ID": "3"}),
        (broken, {}),
        (place.root / "s" / "none", {}),
    ):
        done = place.run(folder, env=env)
        assert done.returncode == 66
        assert done.stderr
        assert not list((place.root / "news").iterdir())
    # Numbers of the array in which a single job was submitted are not its own.
    assert place.run(alone, env={"SLURM_ARRAY_TASK_ID": "9"}).returncode == 0


def test_inputs_are_linked_and_outputs_described(place):
    area = place.root / "s/k/0"
    first, script = given(place, "k", b"data"), given(place, "k", b"#!/bin/sh\ncat in/a > out\n")
    inputs = [
        {**first, "path": str(area / "data/in/a"), "size": 4},
        {**script, "path": str(area / "data/run.sh"), "mode": 0o755},
    ]
    outputs = {
        "out": str(area / "data/out"),
        "tree": str(area / "data/tree"),
        "none": str(area / "data/none"),
        "pipe": str(area / "data/pipe"),
    }
    argv = "./run.sh; mkdir -p tree/b; echo x > tree/a; echo yy > tree/b/c; mkfifo pipe"
    item = place.item("k", "sh", "-c", argv, inputs=inputs, outputs=outputs, cleanup=True)
    assert place.run(ordered(place, "k", item)).returncode == 0
    found = place.told("k")["outputs"]
    assert found["out"] == {"size": 4, "sha256": hashlib.sha256(b"data").hexdigest()}
    assert found["tree"]["files"] == {
        "a": {"size": 2, "sha256": hashlib.sha256(b"x\n").hexdigest()},
        "b/c": {"size": 3, "sha256": hashlib.sha256(b"yy\n").hexdigest()},
    }
    assert found["none"] is None
    assert found["pipe"] is None
    assert not (area / "data/in/a").exists()
    assert (area / "data/out").exists()


def test_an_input_changed_in_place_does_not_reach_other_jobs(place):
    area = place.root / "s/k/0"
    one = given(place, "k", b"data")
    inputs = [{**one, "path": str(area / "data/a")}]
    argv = ("sh", "-c", "sleep 0.01; chmod u+w a; echo bad >> a")
    assert place.run(ordered(place, "k", place.item("k", *argv, inputs=inputs))).returncode == 0
    assert "changed in place" in place.evidence("k")["message"]
    assert not list((place.root / "cache").glob("*/*"))


@pytest.mark.parametrize(
    "change,words",
    [
        ({"inputs": [{"path": "{area}/data/a", "sha256": "0" * 64}]}, "No such file"),
        ({"inputs": [{"path": "/tmp/elsewhere", "sha256": "0" * 64}]}, "not below"),
        ({"launch": {"dir": "/tmp/elsewhere"}}, "not below"),
        ({"launch": {"cwd": "/no/such/folder"}}, "/no/such/folder"),
        ({"launch": {"argv": ["no-such-program"]}}, "no such program"),
        ({"launch": {"limits": {"odd": 1}}}, "unknown limits"),
    ],
)
def test_what_cannot_be_started_is_told(place, change, words):
    area = str(place.root / "s/k/0")
    change = json.loads(json.dumps(change).replace("{area}", area))
    folder = place.submit("k", place.item("k", *place.noted("k"), **change))
    assert place.run(folder).returncode == 70
    end = place.evidence("k")
    assert end["reason"] == "not_started"
    assert words in end["message"]
    assert place.runs("k") == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGXCPU])
def test_the_warning_of_the_batch_system_stops_the_payload(place, number):
    script = "trap 'echo bye; exit 5' TERM; touch begun; while :; do sleep 0.05; done"
    item = place.item("k", *place.noted("k", script), outputs={"o": str(place.root / "s/k/0/x")})
    folder = place.submit("k", item)
    with place.start(folder) as job:
        wait_for((folder / "0/data/begun").exists)
        job.send_signal(number)
        assert job.wait(60) == 5
        job.communicate()
    end = place.evidence("k")
    assert (end["reason"], end["exit"]) == ("stopped", 5)
    assert end["message"] == f"the batch system ended it (signal {int(number)})"
    assert (folder / "0/run/stdout").read_text() == "bye\n"


def test_a_stubborn_payload_is_killed_after_its_grace(place):
    script = "trap '' TERM; touch begun; while :; do sleep 0.05; done"
    folder = place.submit("k", place.item("k", *place.noted("k", script), launch={"grace": 0.3}))
    with place.start(folder) as job:
        wait_for((folder / "0/data/begun").exists)
        begun = time.monotonic()
        job.terminate()
        assert job.wait(60) == 128 + 9
        # Who says nothing of a grace is given ten seconds.
        assert time.monotonic() - begun < 9
        job.communicate()
    assert place.evidence("k")["reason"] == "stopped"


def test_a_signal_to_all_processes_of_the_job_is_told_as_one_of_the_batch_system(place):
    folder = place.submit("k", place.item("k", "sh", "-c", "touch begun; sleep 100"))
    for _ in range(3):
        shutil.rmtree(folder)
        folder = place.submit("k", place.item("k", "sh", "-c", "touch begun; sleep 100"))
        with place.start(folder) as job:
            wait_for((folder / "0/data/begun").exists)
            for pid in (*reversed(_family(job.pid)), job.pid):
                os.kill(pid, signal.SIGTERM)
            assert job.wait(60) == 128 + 15
            job.communicate()
        end = place.evidence("k")
        assert end["reason"] == "stopped"
        # The shell may end by itself, since what it waited for was ended a moment before.
        assert (end["exit"], end["signal"]) in ((None, 15), (128 + 15, None))
        assert end["message"] == "the batch system ended it (signal 15)"


def test_limits_of_the_launch_hold(place):
    late = place.submit("t", place.item("t", "sleep", "60", launch={"timeout": 0.3}))
    place.run(late)
    assert place.evidence("t")["reason"] == "timeout"
    greedy = "x = bytearray(300 << 20)\nimport time\ntime.sleep(60)"
    big = place.item("m", sys.executable, "-c", greedy, launch={"memory": 100 << 20})
    place.run(place.submit("m", big))
    end = place.evidence("m")
    assert end["reason"] == "memory"
    assert end["usage"]["max_rss"] > 100 << 20


def test_a_function_returns_its_result(place):
    area = place.root / "s/k/0"
    run = area / "run"
    argv = [sys.executable, f"{area}/lib/call.py", "--file", f"{run}/recipe.py"]
    argv += ["--function", "f", "--params", f"{run}/p.json", "--result", f"{run}/result.json"]
    files = {"recipe.py": "def f(a):\n    return {'twice': 2 * a}\n", "p.json": '{"a": 21}'}
    item = place.item("k", *argv, launch={"files": files, "result": True})
    assert place.run(place.submit("k", item)).returncode == 0
    assert place.evidence("k")["result"] == {"twice": 42}


def test_the_environment_is_that_of_the_batch_job_without_secrets(place):
    env = {
        "SLURM_JOB_ID": "1",
        "SLURM_JOB_GPUS": "2,3",
        "MY_TOKEN": "hush",
        "PILOTAGE_INDEX": "0",
        "CONDA_PREFIX": "/opt/conda",
        "PMI_AUTH_TOKEN": "needed",
    }
    one = place.submit("a", place.item("a", "env", launch={"env": {"MINE": "1"}}))
    place.run(one, env=env)
    seen = dict(
        line.split("=", 1)
        for line in (one / "0/run/stdout").read_text().splitlines()
        if "=" in line
    )
    assert seen["MINE"] == "1"
    assert seen["CONDA_PREFIX"] == "/opt/conda"
    assert seen["SLURM_JOB_ID"] == "1"
    assert seen["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert "MY_TOKEN" not in seen
    assert "PILOTAGE_INDEX" not in seen
    assert seen["PILOTAGE_KEY"] == "a-0.1"


def test_a_launcher_of_parallel_jobs_keeps_what_it_needs_of_the_scheduler(place):
    tools = place.root / "tools"
    tools.mkdir()
    (tools / "srun").write_text("#!/bin/sh\nexec env\n")
    (tools / "srun").chmod(0o755)
    launch = {"inherit": False, "env": {"PATH": f"{tools}:/usr/bin:/bin"}}
    folder = place.submit("k", place.item("k", "srun", "program", launch=launch))
    env = {"SLURM_JOB_ID": "1", "PMI_AUTH_TOKEN": "needed", "SLURM_JWT": "hush", "OTHER": "x"}
    assert place.run(folder, env=env).returncode == 0
    seen = (folder / "0/run/stdout").read_text()
    assert "SLURM_JOB_ID=1\n" in seen
    assert "PMI_AUTH_TOKEN=needed\n" in seen
    assert "hush" not in seen
    assert "OTHER" not in seen


@pytest.mark.needs("bwrap")
@pytest.mark.parametrize("compiled", [False, True])
def test_it_runs_in_a_sandbox(place, tmp_path, compiled):
    if compiled:
        login.make(str(place.program))
    area = place.root / "s/k/0"
    (tmp_path / "secret").write_text("x")
    sandbox = {"kind": "bubblewrap", "writable": [str(area / "data")]}
    script = f"echo in > out; cat {tmp_path}/secret; ls {place.root}/news"
    launch = {"sandbox": sandbox, "inherit": True}
    item = place.item("k", "sh", "-c", script, launch=launch, outputs={"o": str(area / "data/out")})
    assert place.run(place.submit("k", item)).returncode != 0
    assert place.told("k")["outputs"]["o"]["size"] == 3
    assert (area / "run/stderr").read_text().count("No such file") == 2


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a disk that is full")
@pytest.mark.needs("mount")
def test_evidence_waits_for_space(tmp_path):
    root = tmp_path / "small"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", root], check=True)
    try:
        place = Place(root)
        script = f"dd if=/dev/zero of={root}/filler bs=4k 2>/dev/null; exit 0"
        folder = place.submit("k", place.item("k", *place.noted("k", script)))
        with place.start(folder) as job:
            assert job.stderr is not None
            assert "No space left" in job.stderr.readline()
            assert job.poll() is None
            (root / "filler").unlink()
            assert job.wait(60) == 0
            job.communicate()
        assert place.evidence("k")["exit"] == 0
        assert place.runs("k") == 1
    finally:
        subprocess.run(["umount", "-l", root], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a disk that is full")
@pytest.mark.needs("mount")
def test_without_space_for_evidence_the_warning_ends_the_wait(tmp_path, monkeypatch):
    root = tmp_path / "small"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", root], check=True)
    try:
        place = Place(root)
        script = f"dd if=/dev/zero of={root}/filler bs=4k 2>/dev/null; exit 0"
        folder = place.submit("k", place.item("k", *place.noted("k", script)))
        short = (
            "import sys; from pilotage.node.batchjob import program, record;"
            "record._WARNED_S = 0.5; sys.exit(program.main(sys.argv[2:]))"
        )
        with place.start(folder, program=[sys.executable, "-c", short]) as job:
            assert job.stderr is not None
            assert "No space left" in job.stderr.readline()
            job.terminate()
            assert job.wait(60) == 74
            job.communicate()
        assert not (root / "news/k.0.ended").exists()
        assert (folder / "0.claim/by.json").exists()
    finally:
        subprocess.run(["umount", "-l", root], check=True)


def _family(pid: int) -> list[int]:
    """List the descendants of a process."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += [int(child), *_family(int(child))]
    return found


def _all_of(root: Path) -> dict[str, tuple[int, int]]:
    """Describe everything below a folder."""
    return {
        str(one): (one.lstat().st_mtime_ns, one.lstat().st_ino) for one in sorted(root.rglob("*"))
    }
