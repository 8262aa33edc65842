"""Read files below the project's folder, for the hub."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Mapping
from typing import Any

from . import below

_MOST = 16 << 20


class Files:
    """Everything below a root."""

    def __init__(self, root: str) -> None:
        self._root = root

    def read(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the beginnings of files; nothing for those that are not there."""
        most = min(int(asked.get("most") or _MOST), _MOST)
        found: dict[str, Any] = {}
        for path in asked["paths"]:
            piece = self._piece(path, 0, most)
            found[path] = piece and {"data": _plain(piece[0]), "size": piece[1]}
        return {"files": found}

    def tails(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return files from where the hub has read them; nothing for those that are not there."""
        found = []
        for path, offset, most in asked["files"]:
            piece = self._piece(path, int(offset), min(int(most), _MOST))
            found.append(_plain(piece[0]) if piece else "")
        return {"tails": found}

    def stat(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Describe what lies at paths."""
        return {"found": {path: self._facts(path, names=False) for path in asked["paths"]}}

    def list(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Describe what lies at paths, with the names in folders."""
        return {"found": {path: self._facts(path, names=True) for path in asked["paths"]}}

    def _piece(self, path: str, offset: int, most: int) -> tuple[bytes, int] | None:
        fd = below.opened(self._root, path)
        if fd is None:
            return None
        try:
            facts = os.fstat(fd)
            # A pipe would block, a device has no end.
            if not stat.S_ISREG(facts.st_mode):
                return None
            return _read(fd, offset, most), facts.st_size
        finally:
            os.close(fd)

    def _facts(self, path: str, *, names: bool) -> dict[str, Any] | None:
        fd = below.opened(self._root, path)
        if fd is None:
            return None
        try:
            facts = os.fstat(fd)
            kind = _kind(facts.st_mode)
            found = {"size": facts.st_size, "mtime_ns": facts.st_mtime_ns, "kind": kind}
            if names and kind == "folder":
                return {**found, "names": sorted(os.listdir(fd))}
            return found
        finally:
            os.close(fd)


def _read(fd: int, offset: int, most: int) -> bytes:
    pieces = []
    while most > 0 and (piece := os.pread(fd, most, offset)):
        pieces.append(piece)
        offset += len(piece)
        most -= len(piece)
    return b"".join(pieces)


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "other"


def _plain(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
