"""Sandboxes of this machine that jobs elsewhere mount: served by SFTP, each to one key alone.

`Jails` serves them, `lay` puts a job's inputs into one, and `take` names what the job has left.
Whatever a client says, nothing outside its folder is reached.
"""

from __future__ import annotations

from .furnish import lay, take
from .model import HOST, Access, Bounds
from .serve import Jails

__all__ = ["HOST", "Access", "Bounds", "Jails", "lay", "take"]
