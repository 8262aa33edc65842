"""The batch systems that we know, by the names that files of sites use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import plugin
from .model import Batch

#: Those of our own, and those of them that know no arrays.
OURS = ("slurm", "htcondor", "pbs", "gridengine", "lsf", "flux", "local")
_WITHOUT_ARRAYS = frozenset({"flux"})


def arrays(name: str) -> bool:
    """Say whether a batch system can run arrays."""
    return name not in _WITHOUT_ARRAYS if name in OURS else plugin.arrays(name)


def adapter(
    name: str, *, program: tuple[str, ...], folder: str, settings: Mapping[str, Any] | None = None
) -> Batch:
    """Return what speaks with a batch system; each is loaded only where it is used.

    `program` runs our program at the site, `folder` is where it keeps the queue of one machine;
    `settings` is what a plug-in is told.
    """
    match name:
        case "slurm":
            from .slurm import Slurm

            return Slurm()
        case "htcondor":
            from .htcondor import HTCondor

            return HTCondor()
        case "pbs":
            from .pbs import PBS

            return PBS()
        case "gridengine":
            from .gridengine import GridEngine

            return GridEngine()
        case "lsf":
            from .lsf import LSF

            return LSF()
        case "flux":
            from .flux import Flux

            return Flux()
        case "local":
            from .local import Local

            return Local(program, folder)
        case _:
            return plugin.make(name, settings or {})
