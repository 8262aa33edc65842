"""Facts of the batch job that a program runs in, from the variables that batch systems set.

The hub has the same variables in `batch/system/known.py`; a test compares them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

_MEBI = 1 << 20

#: Variables that hold how many cores of this node the job may use.
_CPUS = ("SLURM_CPUS_ON_NODE", "PBS_NCPUS", "NCPUS", "NSLOTS", "LSB_DJOB_NUMPROC")
#: Folders that a batch system made for the job alone, the best first.
_SCRATCH = ("_CONDOR_SCRATCH_DIR", "SLURM_TMPDIR", "PBS_JOBDIR", "TMPDIR")


class System(NamedTuple):
    """One batch system."""

    name: str
    #: The variable that holds the id of the job.
    job: str
    #: Prefixes of its variables.
    prefixes: tuple[str, ...]
    #: Variables that number the jobs of an array, each with the number of the first one.
    indices: tuple[tuple[str, int], ...] = ()


#: In the order in which they are looked for: the variable of the last is a common word.
SYSTEMS = (
    System(
        "slurm", "SLURM_JOB_ID", ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_"),
        (("SLURM_ARRAY_TASK_ID", 0),),
    ),
    System("pbs", "PBS_JOBID", ("PBS_",), (("PBS_ARRAY_INDEX", 0), ("PBS_ARRAYID", 0))),
    System("lsf", "LSB_JOBID", ("LSB_", "LSF_"), (("LSB_JOBINDEX", 1),)),
    System("htcondor", "_CONDOR_JOB_AD", ("_CONDOR_",)),
    System("flux", "FLUX_JOB_ID", ("FLUX_",)),
    System("oar", "OAR_JOB_ID", ("OAR_",)),
    System("gridengine", "JOB_ID", ("SGE_",), (("SGE_TASK_ID", 1),)),
)  # fmt: skip
PREFIXES = tuple(prefix for system in SYSTEMS for prefix in system.prefixes)


def job(env: Mapping[str, str]) -> str:
    """Name the batch job, such as `slurm:1234`; empty outside of any."""
    for system in SYSTEMS:
        if value := env.get(system.job):
            # HTCondor names a file with the ad of the job.
            number = _ad(value).get("ClusterId", "") if system.name == "htcondor" else value
            return f"{system.name}:{number}"
    return ""


def cpus(env: Mapping[str, str]) -> int | None:
    """Return how many cores the job was given."""
    for variable in _CPUS:
        if env.get(variable, "").isdigit() and int(env[variable]):
            return int(env[variable])
    found = _ad(env.get("_CONDOR_MACHINE_AD", "")).get("Cpus", "")
    return int(found) if found.isdigit() else None


def memory(env: Mapping[str, str], cpus: int) -> int | None:
    """Return how many bytes of memory the job was given."""
    if env.get("SLURM_MEM_PER_NODE", "").isdigit() and int(env["SLURM_MEM_PER_NODE"]):
        return int(env["SLURM_MEM_PER_NODE"]) * _MEBI
    if env.get("SLURM_MEM_PER_CPU", "").isdigit():
        return int(env["SLURM_MEM_PER_CPU"]) * _MEBI * cpus
    found = _ad(env.get("_CONDOR_MACHINE_AD", "")).get("Memory", "")
    return int(found) * _MEBI if found.isdigit() else None


def lifetime(env: Mapping[str, str], now: float) -> float | None:
    """Return for how many seconds the job may still run."""
    end = env.get("SLURM_JOB_END_TIME", "")
    return max(0.0, int(end) - now) if end.isdigit() else None


def scratch(env: Mapping[str, str]) -> str:
    """Return the folder for files that may go when the job ends."""
    for variable in _SCRATCH:
        if env.get(variable) and os.path.isdir(env[variable]):
            return env[variable]
    # It loads much, and most who want the other facts have no use for it.
    import tempfile

    return tempfile.gettempdir()


def _ad(path: str) -> dict[str, str]:
    """Read the plain values of a file of HTCondor."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            pairs = (line.partition("=") for line in file)
            return {name.strip(): value.strip().strip('"') for name, _, value in pairs}
    except OSError:
        return {}
