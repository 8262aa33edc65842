"""Batch jobs of a real Slurm: numbers, warnings, requeues and parallel launchers."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from pathlib import Path

import pytest

from testbed.slurm import Slurm
from tests.rigs.node.login_helper import Place, wait_for


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path / "root")


def submitted(slurm: Slurm, place: Place, folder: Path, *options: str) -> str:
    """Submit a script as sites get it: the job is the batch task itself."""
    script = folder / "script"
    argv = [sys.executable, "-I", "-S", str(place.program), "job", str(folder)]
    script.write_text(f"#!/bin/sh\nexec {shlex.join(argv)}\n")
    words = ("sbatch", "--parsable", f"--output={folder}/out.%j", *options, str(script))
    return slurm.run(*words).strip()


def test_each_job_of_an_array_runs_its_item(slurm: Slurm, place):
    items = (place.item("a", *place.noted("a", "exit", str(i)), index=i) for i in range(3))
    job = submitted(slurm, place, place.submit("a", *items), "--array=0-2")
    wait_for(lambda: len(list((place.root / "news").glob("a.*.ended"))) == 3)
    assert [place.evidence("a", i)["exit"] for i in range(3)] == [0, 1, 2]
    assert [place.told("a", index=i)["batch"] for i in range(3)] == [
        f"slurm:{job}_{i}" for i in range(3)
    ]
    assert place.runs("a") == 3


def test_a_job_that_is_called_off_leaves_evidence_first(slurm: Slurm, place):
    script = "touch begun; exec sleep 600"
    folder = place.submit("c", place.item("c", *place.noted("c", script)))
    job = submitted(slurm, place, folder)
    wait_for((folder / "0/data/begun").exists)
    slurm.run("scancel", job)
    wait_for((place.root / "news/c.0.ended").exists)
    end = place.evidence("c")
    # Slurm tells all processes at once: the payload may hear of it before its program does.
    heard = end["message"].startswith("the batch system ended it (signal ")
    assert (end["reason"] == "stopped" and heard) or end["signal"] == signal.SIGTERM


def test_a_warning_before_the_end_is_heard(slurm: Slurm, place):
    script = "trap 'echo saved; exit 9' TERM; touch begun; while :; do sleep 0.1; done"
    folder = place.submit("w", place.item("w", *place.noted("w", script)))
    job = submitted(slurm, place, folder)
    wait_for((folder / "0/data/begun").exists)
    slurm.run("scancel", "--batch", "--signal=USR1", job)
    wait_for((place.root / "news/w.0.ended").exists)
    end = place.evidence("w")
    assert (end["reason"], end["exit"]) == ("stopped", 9)
    assert end["message"] == "the batch system ended it (signal 10)"
    assert (folder / "0/run/stdout").read_text() == "saved\n"


def test_a_job_that_is_requeued_runs_nothing_again(slurm: Slurm, place):
    # One process: a shell whose child is ended first may end well before it hears of it itself.
    script = "touch begun; exec sleep 600"
    folder = place.submit("r", place.item("r", *place.noted("r", script)))
    job = submitted(slurm, place, folder, "--requeue")
    wait_for((folder / "0/data/begun").exists)
    slurm.run("scontrol", "requeue", job)
    wait_for((place.root / "news/r.0.ended").exists)
    assert place.evidence("r")["reason"] == "stopped"
    deadline = time.monotonic() + 60
    while "duplicate" not in (folder / f"out.{job}").read_text():
        assert time.monotonic() < deadline
        # By itself, Slurm would wait two minutes.
        if slurm.run("squeue", "--noheader", "--format=%T", f"--jobs={job}").strip() == "PENDING":
            slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")
        time.sleep(5)
    assert place.runs("r") == 1


def test_a_parallel_launcher_finds_its_scheduler(slurm: Slurm, place):
    launch = {"inherit": False, "env": {"MINE": "x"}}
    script = "echo $MINE $SLURM_PROCID"
    item = place.item("p", "srun", "--ntasks=2", "sh", "-c", script, launch=launch)
    folder = place.submit("p", item)
    submitted(slurm, place, folder, "--ntasks=2")
    wait_for((place.root / "news/p.0.ended").exists)
    assert place.evidence("p")["exit"] == 0, (folder / "0/run/stderr").read_text()
    assert sorted((folder / "0/run/stdout").read_text().split("\n")) == ["", "x 0", "x 1"]
