"""Grid Engine (Son of, Univa, Altair, Open): `qsub`, `qstat`, `qacct` and `qdel`."""

from .adapter import GridEngine

__all__ = ["GridEngine"]
