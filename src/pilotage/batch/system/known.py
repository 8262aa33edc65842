"""Table of batch systems: names in site files, variables, and adapters.

The program at worker nodes has the variables in a table of its own, `node/discover/batch.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import msgspec

from . import plugin
from .model import BatchSystem


class SystemFacts(msgspec.Struct, frozen=True):
    """One batch system."""

    #: As files of sites have it; the module of its adapter has the same name.
    name: str
    #: Prefixes of the variables that its jobs have and its tools read.
    prefixes: tuple[str, ...] = ()
    #: Variables that number the jobs of an array, each with the number of the first one.
    indices: tuple[tuple[str, int], ...] = ()


SYSTEMS = (
    SystemFacts(
        "slurm", ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_"), (("SLURM_ARRAY_TASK_ID", 0),)
    ),
    SystemFacts("htcondor", ("_CONDOR_",)),
    SystemFacts("pbs", ("PBS_",), (("PBS_ARRAY_INDEX", 0), ("PBS_ARRAYID", 0))),
    SystemFacts("gridengine", ("SGE_",), (("SGE_TASK_ID", 1),)),
    SystemFacts("lsf", ("LSB_", "LSF_"), (("LSB_JOBINDEX", 1),)),
    SystemFacts("flux", ("FLUX_",)),
    SystemFacts("local"),
)  # fmt: skip
#: Names of the adapters that come with Pilotage.
OURS = tuple(system.name for system in SYSTEMS)
#: Prefixes of all variables of batch systems; pilots also know OAR, which has no adapter.
PREFIXES = (*(prefix for system in SYSTEMS for prefix in system.prefixes), "OAR_")


def arrays(name: str, settings: Mapping[str, Any]) -> bool:
    """Return whether a batch system can run arrays."""
    return adapter(name, program=(), folder="", settings=settings).arrays


def adapter(
    name: str, *, program: tuple[str, ...], folder: str, settings: Mapping[str, Any]
) -> BatchSystem:
    """Return the adapter of a batch system; each is loaded only where it is used.

    `program` runs our program at the site, `folder` is where it keeps the queue of one machine;
    `settings` is `[plugin]` of the site's file.
    """
    if name == "local":
        from .local import local

        return local(program, folder)
    if name in OURS:
        tools: BatchSystem = importlib.import_module(f"{__package__}.{name}").TOOLS
        return tools
    return plugin.make(name, settings)
