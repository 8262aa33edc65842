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
        """Return the version from the status of a file."""
        times = (facts.st_mtime_ns, facts.st_ctime_ns)
        return cls(facts.st_dev, facts.st_ino, facts.st_size, *times)

    @classmethod
    def at(cls, path: str) -> Version | None:
        """Return the version of a file; nothing if it is missing, or the path is empty."""
        try:
            return cls.of(os.stat(path)) if path else None
        except OSError:
            return None
