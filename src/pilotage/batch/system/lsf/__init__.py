"""LSF, from 10.1 on: `bsub`, `bjobs` and `bkill`."""

from .adapter import LSF

__all__ = ["LSF"]
