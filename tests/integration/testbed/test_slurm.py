from __future__ import annotations

import time

import pytest

from testbed.errors import NotUp
from testbed.slurm import Slurm


def test_a_job_runs(slurm: Slurm):
    output = slurm.folder / "hello.out"
    slurm.run(
        "sbatch", "--wait", f"--output={output}", "--wrap", "echo hello from $SLURMD_NODENAME"
    )
    assert output.read_text().startswith("hello from n")


def test_a_job_that_takes_more_memory_than_it_asked_for_is_killed(slurm: Slurm):
    greed = "python3 -c 'import time; x = bytes(range(256)) * 2_000_000; time.sleep(60)'"
    job = submit(slurm, "--mem=100M", "--wrap", greed)
    assert wait(slurm, job, "PENDING", "RUNNING", "COMPLETING") == slurm.memory.end_state


def test_a_node_fails_with_its_jobs_and_comes_back(slurm: Slurm):
    job = submit(slurm, "--nodelist=n2", "--no-requeue", "--wrap", "sleep 600")
    assert wait(slurm, job, "PENDING", "CONFIGURING") == "RUNNING"
    slurm.fail_node("n2")
    assert wait(slurm, job, "RUNNING", "COMPLETING") == "NODE_FAIL"
    slurm.restore_node("n2")
    slurm.run("srun", "--nodelist=n2", "true")


def test_jobs_outlive_the_controller(slurm: Slurm):
    job = submit(slurm, "--wrap", "sleep 600")
    wait(slurm, job, "PENDING", "CONFIGURING")
    slurm.stop_controller()
    with pytest.raises(NotUp, match="Unable to contact slurm controller"):
        state(slurm, job)
    slurm.start_controller()
    assert state(slurm, job) == "RUNNING"
    slurm.run("scancel", job)


def test_accounting_remembers(slurm_accounting: Slurm):
    job = submit(slurm_accounting, "--wait", "--wrap", "true")
    query = ("sacct", "--jobs", job, "--allocations", "--noheader", "--format=state")
    deadline = time.monotonic() + 60
    while slurm_accounting.run(*query).strip() != "COMPLETED":
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_two_clusters_at_once_write_down_what_ended(slurm: Slurm, slurm_accounting: Slurm):
    for cluster in (slurm, slurm_accounting):
        array = ("--wait", "--array=0-1", "--job-name=pair")
        job = submit(cluster, *array, "--cpus-per-task=2", "--wrap", "true")
        mine = [one for one in cluster.ended() if one.name == "pair"]
        assert {(one.place, one.state, one.cores) for one in mine} == {
            (0, "COMPLETED", 2), (1, "COMPLETED", 2),
        }  # fmt: skip
        assert job in {one.id for one in mine}
        assert all(one.nodes for one in mine)


def submit(slurm: Slurm, *words: str) -> str:
    """Submit a job; return its number."""
    return slurm.run("sbatch", "--parsable", f"--output={slurm.folder}/%j.out", *words).strip()


def state(slurm: Slurm, job: str) -> str:
    """Return the state of a job."""
    query = ("squeue", "--states=all", "--noheader", "--format=%T")
    return slurm.run(*query, f"--jobs={job}").strip()


def wait(slurm: Slurm, job: str, *before: str) -> str:
    """Return the first state of a job that is none of those that come before."""
    deadline = time.monotonic() + 60
    while (now := state(slurm, job)) in before:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return now
