"""Check that an input is unchanged since its rule matched it."""

from __future__ import annotations

import os

from pilotage.base import text
from pilotage.event import content
from pilotage.event.model import FileVersion
from pilotage.job.model import Binding, OnChange


def objection(binding: Binding, on_change: OnChange) -> str:
    """Return why a job must not run on its input; empty if it may."""
    if on_change == "ignore" or not binding.path or not (binding.version or binding.sha256):
        return ""
    try:
        found = os.stat(binding.path)
    except OSError:
        return f"its input {text.show(binding.path)} is gone"
    version = str(FileVersion(found.st_ino, found.st_size, found.st_mtime_ns))
    if on_change == "latest" or version == binding.version:
        return ""
    if binding.sha256 and content.sha256(binding.path) == binding.sha256:
        return ""
    return f"its input {text.show(binding.path)} has changed since the rule matched it"
