"""The default owner of a job: the user of this process."""

from __future__ import annotations

import functools
import getpass
import os


@functools.cache
def me() -> str:
    """Name the user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
