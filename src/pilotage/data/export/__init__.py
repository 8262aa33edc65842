"""Folders of this machine that jobs elsewhere mount: served by OpenSSH, each to one key alone.

`Exports` serves them, `lay` prepares the folder of a job, and `take` finds an output that the job
has left there. Each folder is served from a sandbox in which there is nothing else of the user's.
"""

from __future__ import annotations

from .folder import Layout, lay, reclaim, remove, take
from .model import HOST, Access, ExportLimits
from .serve import Exports

__all__ = [
    "HOST",
    "Access",
    "ExportLimits",
    "Exports",
    "Layout",
    "lay",
    "reclaim",
    "remove",
    "take",
]
