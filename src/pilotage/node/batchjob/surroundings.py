"""What a payload finds in its environment: that of the batch job, without secrets of others."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ..systems import PREFIXES

#: What looks like a secret is not passed on, unless a launcher of parallel jobs needs it.
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|PRIVATE|JWT|API_?KEY", re.IGNORECASE)
_OURS = "PILOTAGE_"
#: Variables by which launchers and their processes find each other.
_LAUNCHING = (
    *PREFIXES, "PMI_", "PMIX_", "PMI2_", "OMPI_", "PRTE_", "I_MPI_", "HYDRA_", "MPICH_", "MPI_",
    "PE_", "PALS_", "UCX_", "FI_",
)  # fmt: skip
_ALONE = ("PATH", "LD_LIBRARY_PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "NSLOTS", "JOB_ID")
_LAUNCHERS = ("srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "aprun", "jsrun")
#: Variables that say which GPUs the batch system has given to this job.
_GPUS = (
    "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
)  # fmt: skip
_GIVEN_GPUS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")


def passed(env: Mapping[str, str]) -> dict[str, str]:
    """Choose what of the batch job's environment a payload may have."""
    return {name: value for name, value in env.items() if not _is_hidden(name)}


def completed(launch: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, Any]:
    """Add to a launch what it needs of the batch job's environment even if it has its own."""
    needed = _gpus(env)
    if os.path.basename((launch["argv"] or [""])[0]) in _LAUNCHERS:
        needed.update((name, env[name]) for name in env if _is_launching(name))
    return {**launch, "env": {**needed, **launch["env"]}}


def _gpus(env: Mapping[str, str]) -> dict[str, str]:
    found = {name: env[name] for name in _GPUS if name in env}
    given = [env[name] for name in _GIVEN_GPUS if env.get(name)]
    if given and "CUDA_VISIBLE_DEVICES" not in found:
        found["CUDA_VISIBLE_DEVICES"] = given[0]
    return found


def _is_hidden(name: str) -> bool:
    if name.startswith(_OURS):
        return True
    return bool(_SECRET.search(name)) and not _is_launching(name)


def _is_launching(name: str) -> bool:
    # The last is the user's own key to the scheduler, which no launcher needs.
    return (name.startswith(_LAUNCHING) or name in _ALONE) and name != "SLURM_JWT"
