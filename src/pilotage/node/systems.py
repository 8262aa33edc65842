"""Batch systems by the variables that they set in a job's environment.

The hub has the same in `batch/system/known.py`; a test compares them.
"""

from __future__ import annotations

from typing import NamedTuple


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
