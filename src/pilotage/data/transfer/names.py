"""Names of files that come from elsewhere are not to be trusted."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection

from pilotage.base import errors, text

#: What a digest looks like.
DIGEST = re.compile("[0-9a-f]{64}")


def check_one(name: str, *, who: str = "the site") -> None:
    """Raise `Denied` for a name that leads out of its folder."""
    parts = name.split("/")
    if not all(parts) or "\0" in name or {".", ".."} & set(parts):
        raise errors.Denied(f"{who} names a file {text.show(name)!r}, which cannot be")


def check(names: Collection[str], *, who: str = "the site") -> None:
    """Raise `Denied` for a name that leads out of its folder, or is a folder of another."""
    folders: set[str] = set()
    for name in names:
        check_one(name, who=who)
        parts = name.split("/")
        folders.update("/".join(parts[:count]) for count in range(1, len(parts)))
    if both := folders.intersection(names):
        one = text.show(min(both))
        raise errors.Denied(f"{who} names {one!r} as a file and as a folder")


def inside(top: str, name: str) -> str:
    """Make the folder of a file below another; raise `Denied` if a link leads out."""
    path = os.path.join(top, name)
    folder = os.path.dirname(path)
    real = os.path.realpath(top)
    # Before anything is made: a link must not make us build folders elsewhere.
    for target in (folder, path):
        if os.path.commonpath((real, os.path.realpath(target))) != real:
            raise errors.Denied(f"{text.show(path)} is a link that leads out of {text.show(top)}")
    os.makedirs(folder, exist_ok=True)
    return path


def aside(path: str, content: str) -> str:
    """Name where something is put together before it gets its own name.

    The name begins with a dot, so that no rule fires on half a file, and is the same each time, so
    that another attempt goes on with it.
    """
    folder, name = os.path.split(path)
    mark = hashlib.sha256(os.fsencode(f"{name}\0{content}")).hexdigest()[:32]
    return os.path.join(folder, f".{mark}.part")
