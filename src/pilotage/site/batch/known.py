"""The batch systems that we know, by the names that files of sites use."""

from __future__ import annotations

from pilotage import errors

from .model import Batch


#: Batch systems that know no arrays.
WITHOUT_ARRAYS = frozenset({"flux"})


def adapter(name: str, *, program: tuple[str, ...], folder: str) -> Batch:
    """Return what speaks with a batch system; each is loaded only where it is used.

    `program` runs our program at the site, `folder` is where it keeps the queue of one machine.
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
            raise errors.ConfigError(f"there is no batch system {name!r}")
