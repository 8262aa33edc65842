"""The keeper's own folder: what a container without an image is made of."""

from __future__ import annotations

import contextlib
import os
from typing import Any


def furnish(home: str, request: dict[str, Any]) -> None:
    """Put there what was asked for."""
    # Those in a container's user namespace must be able to go through, but not to look.
    os.chmod(home, 0o711)  # noqa: S103 - as said
    for name, text in request.get("files", {}).items():
        fd = os.open(f"{home}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
    root = f"{home}/root"
    os.makedirs(root)
    for path in request.get("folders", ()):
        os.makedirs(f"{root}/{path}", exist_ok=True)
        if path in ("tmp", "var/tmp"):
            # What is mounted there gets the same mode.
            os.chmod(f"{root}/{path}", 0o1777)  # noqa: S103 - as such folders have
    for path in request.get("empty", ()):
        os.makedirs(os.path.dirname(f"{root}/{path}"), exist_ok=True)
        os.close(os.open(f"{root}/{path}", os.O_WRONLY | os.O_CREAT, 0o644))
    for path, target in request.get("links", {}).items():
        os.symlink(target, f"{root}{path}")


def clear(home: str, request: dict[str, Any]) -> None:
    """Remove what was put there, by name: what else may be there is not ours, so it stays."""
    root = f"{home}/root"
    files = [f"{home}/{name}" for name in request.get("files", {})]
    files += [f"{root}/{path}" for path in request.get("empty", ())]
    files += [f"{root}{path}" for path in request.get("links", {})]
    folders = {home, root}
    for path in (*(f"{root}/{path}" for path in request.get("folders", ())), *files):
        while len(path) > len(root):
            folders.add(path)
            path = os.path.dirname(path)  # noqa: PLW2901 - goes up
    for path in files:
        with contextlib.suppress(OSError):
            os.unlink(path)
    for path in sorted(folders, key=len, reverse=True):
        with contextlib.suppress(OSError):
            os.rmdir(path)
