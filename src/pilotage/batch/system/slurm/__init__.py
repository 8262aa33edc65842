"""Slurm, from 20.02 on: `sbatch`, `srun`, `squeue`, `sacct` and `scancel`."""

from .adapter import Slurm

__all__ = ["Slurm"]
