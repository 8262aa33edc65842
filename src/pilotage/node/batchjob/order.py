"""The item of a submission that this job runs, and the environment of its payload."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from typing import Any

from ..discover.batch import PREFIXES, SYSTEMS

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


#: The variables that number the jobs of an array, and what the first one is. Ours goes first: we
#: set it for one job alone, while the others may come from a job in which this one was submitted.
_NUMBERS = (("PILOTAGE_INDEX", 0), *(one for system in SYSTEMS for one in system.indices))
_TRIES_S = 10.0
_PAUSE_S = 0.2


class OrderError(Exception):
    """There is nothing that this job could do."""


def index(env: Mapping[str, str], count: int) -> int:
    """Return the index of this job's item."""
    if count == 1:
        return 0
    for name, first in _NUMBERS:
        value = env.get(name, "")
        # Grid Engine says `undefined` and LSF says 0 outside of arrays.
        if value.isdigit() and int(value) >= first:
            number = int(value) - first
            break
    else:
        raise OrderError(f"no variable says which of {count} items this is")
    if number >= count:
        raise OrderError(f"there are {count} items, and {name} is {value}")
    return number


def batch(env: Mapping[str, str]) -> str:
    """Name the batch job and its number in the array, such as `slurm:123_4`."""
    if env.get("PILOTAGE_BATCH"):
        return env["PILOTAGE_BATCH"]
    if env.get("SLURM_ARRAY_JOB_ID") and env.get("SLURM_JOB_ID"):
        return f"slurm:{env['SLURM_ARRAY_JOB_ID']}_{env.get('SLURM_ARRAY_TASK_ID', '')}"
    from ..discover import batch as discover

    name = discover.job(env)
    if name.startswith("gridengine:") and env.get("SGE_TASK_ID", "").isdigit():
        return f"{name}.{env['SGE_TASK_ID']}"
    if name.startswith("htcondor:") and env.get("PILOTAGE_INDEX", "").isdigit():
        return f"{name}.{env['PILOTAGE_INDEX']}"
    if name.startswith("lsf:") and env.get("LSB_JOBINDEX", "0") != "0":
        return f"{name}[{env['LSB_JOBINDEX']}]"
    return name


def items(folder: str) -> list[str]:
    """Read the items of a submission, each as JSON."""
    text = _text(os.path.join(folder, "order.json"))
    lines = text.rstrip("\n").split("\n")
    # As the login helper writes it: to read all of a large array would take each of its jobs long.
    if len(lines) > 2 and lines[0].endswith('"items":[') and lines[-1] == "]}":
        return [line.rstrip(",") for line in lines[1:-1]]
    try:
        return [json.dumps(one) for one in json.loads(text)["items"]]
    except (ValueError, KeyError, TypeError) as error:
        raise OrderError(f"{folder}/order.json is not understood: {error!r}") from error


def item(text: str) -> dict[str, Any]:
    """Read one item."""
    try:
        found = json.loads(text)
        if not all(isinstance(found["launch"][name], str) for name in ("key", "dir", "cwd")):
            raise TypeError("its launch is incomplete")
        return dict(found)
    except (ValueError, KeyError, TypeError) as error:
        raise OrderError(f"an item is not understood: {error!r}") from error


def _text(path: str) -> str:
    """Read a file that a login node has just written, which may take a moment to be seen."""
    deadline = time.monotonic() + _TRIES_S
    while True:
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except OSError as error:
            # Without the folder around it, it was dropped.
            if time.monotonic() > deadline or not os.path.isdir(os.path.dirname(path)):
                raise OrderError(f"there is no order {path}: {error.strerror}") from error
            time.sleep(_PAUSE_S)
