"""What a node is, read from trees that look like other machines."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pilotage.node.discover import batch, node

GIBI = 1 << 30


def _tree(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_quota_and_memory_of_unified_groups_count_also_those_above(tmp_path):
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/slurm/job_7/step_0\n",
            "sys/fs/cgroup/slurm/job_7/step_0/cpu.max": "max 100000\n",
            "sys/fs/cgroup/slurm/job_7/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/slurm/job_7/step_0/memory.max": "max\n",
            "sys/fs/cgroup/slurm/memory.max": f"{3 * GIBI}\n",
            "proc/meminfo": "MemTotal:       67108864 kB\nMemFree: 1 kB\n",
        },
    )
    assert node.cpus(root) == 2.5
    assert node.memory(root) == 3 * GIBI
    assert node.count_memory({}, 2, root) == 3 * GIBI


def test_quota_and_memory_of_groups_of_the_first_version(tmp_path):
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n",
            # In a container the group itself is what is mounted.
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIBI}\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    assert node.cpus(root) == 1.5
    assert node.memory(root) == 2 * GIBI
    assert node.count_cpus({}, root) == 1


def test_no_limit_is_no_limit(tmp_path):
    root = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "5:memory:/\n3:cpu:/\n0::/x\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/unified/x/cpu.max": "max 100000\n",
            "proc/meminfo": "MemTotal: 1024 kB\n",
        },
    )
    assert node.cpus(root) is None
    assert node.memory(root) is None
    assert node.count_cpus({}, root) == len(os.sched_getaffinity(0))
    assert node.count_memory({}, 1, root) == 1 << 20


def test_an_empty_machine_still_has_one_core(tmp_path):
    assert node.count_cpus({}, str(tmp_path)) >= 1
    assert node.count_memory({}, 1, str(tmp_path)) == 0
    assert node.release(str(tmp_path)) == ""


@pytest.mark.parametrize(
    "env, job, cpus",
    [
        ({}, "", None),
        ({"SLURM_JOB_ID": "42", "SLURM_CPUS_ON_NODE": "1"}, "slurm:42", 1),
        ({"PBS_JOBID": "7.server", "NCPUS": "3"}, "pbs:7.server", 3),
        ({"JOB_ID": "9", "NSLOTS": "2"}, "gridengine:9", 2),
        ({"LSB_JOBID": "5", "LSB_DJOB_NUMPROC": "x"}, "lsf:5", None),
    ],
)
def test_batch_systems_say_who_we_are(env, job, cpus):
    assert batch.job(env) == job
    assert batch.cpus(env) == cpus


def test_htcondor_says_it_in_files(tmp_path):
    _tree(tmp_path, {"job": "ClusterId = 12\n", "machine": "Cpus = 4\nMemory = 2048\n"})
    env = {"_CONDOR_JOB_AD": f"{tmp_path}/job", "_CONDOR_MACHINE_AD": f"{tmp_path}/machine"}
    assert batch.job(env) == "htcondor:12"
    assert batch.cpus(env) == 4
    assert batch.memory(env, 4) == 2 * GIBI


def test_memory_and_time_of_slurm():
    assert batch.memory({"SLURM_MEM_PER_NODE": "1024"}, 8) == GIBI
    assert batch.memory({"SLURM_MEM_PER_CPU": "512"}, 4) == 2 * GIBI
    now = time.time()
    env = {"SLURM_JOB_END_TIME": str(int(now) + 3600)}
    assert 3590 < (batch.lifetime(env, now) or 0) <= 3600
    given = node.Given(lifetime=60.0)
    assert node.lifetime(given, env) == 60.0
    assert node.lifetime(node.Given(), {}) is None


_SMI = "0, GPU-aaaa, NVIDIA A100, 40960\n1, GPU-bbbb, NVIDIA A100, 40960\n2, GPU-cccc, GH200, [N/A]"


@pytest.mark.parametrize(
    "seen, names",
    [
        (None, ["NVIDIA A100", "NVIDIA A100", "GH200"]),
        ("2", ["GH200"]),
        ("GPU-bbbb", ["NVIDIA A100"]),
        ("", []),
        ("-1", []),
    ],
)
def test_gpus_are_those_that_may_be_seen(seen, names):
    env = {} if seen is None else {"CUDA_VISIBLE_DEVICES": seen}
    found = node.found(env, query=("printf", "%s", _SMI))
    assert [card["name"] for card in found] == names


def test_gpus_without_the_driver_s_program_are_devices(tmp_path):
    root = _tree(tmp_path, {"dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidiactl": ""})
    assert len(node.found({}, root, ("/nonexistent",))) == 2
    assert node.found({}, str(tmp_path / "none"), ("false",)) == []


def test_facts_of_this_machine_are_what_the_hub_understands(tmp_path):
    import msgspec

    from pilotage.pilot.model import NodeFacts

    found = node.facts(str(tmp_path), node.Given(attributes={"fast": True}), os.environ)
    facts = msgspec.convert(found, NodeFacts)
    assert facts.cpus >= 1
    assert facts.memory > 1 << 20
    assert facts.os == "linux"
    assert facts.attributes["fast"] is True
