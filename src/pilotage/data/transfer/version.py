"""Versions of files: values that change whenever the content does."""

from __future__ import annotations

import os
from typing import NamedTuple


class Version(NamedTuple):
    """A value that changes whenever a file's content does."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, facts: os.stat_result) -> Version:
        """Read the version off a file's facts."""
        times = (facts.st_mtime_ns, facts.st_ctime_ns)
        return cls(facts.st_dev, facts.st_ino, facts.st_size, *times)

    @classmethod
    def at(cls, path: str) -> Version | None:
        """Read the version of what is there now; nothing if nothing is, or none is named."""
        try:
            return cls.of(os.stat(path)) if path else None
        except OSError:
            return None
