"""Files below the project's folder, read for the hub; symbolic links lead nowhere else."""

from __future__ import annotations

import base64
import errno
import os
import re
import stat
from collections.abc import Mapping
from typing import Any

#: Kinds that the hub acts upon: wait for space, say so, or give up.
_KINDS = {
    errno.ENOSPC: "disk",
    errno.EDQUOT: "disk",
    errno.EROFS: "disk",
    errno.EIO: "disk",
    errno.EFBIG: "disk",
    errno.ESTALE: "disk",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.ELOOP: "denied",
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
}


class RequestError(Exception):
    """A request that cannot be granted."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind


def error_reply(error: BaseException) -> dict[str, str]:
    """Return what went wrong, with the path if there is one."""
    if isinstance(error, RequestError):
        return {"error": str(error), "kind": error.kind}
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        words = error.strerror or str(error)
        return {"error": f"{where}{words}", "kind": _KINDS.get(error.errno or 0, "other")}
    if isinstance(error, (KeyError, TypeError, ValueError, AttributeError, IndexError)):
        return {"error": f"the request is not understood: {error!r}", "kind": "usage"}
    return {"error": repr(error), "kind": "other"}


_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
#: Nothing is there, or a link, a device or a socket.
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
_STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LAST = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def check_key(key: object) -> str:
    """Return the key of a submission, if it is one."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise RequestError("usage", f"{key!r} is no key of a submission")
    return key


def check_digest(digest: object) -> str:
    """Return the digest of a file, if it is one."""
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise RequestError("usage", f"{digest!r} is no digest")
    return digest


def inside(root: str, path: str) -> str:
    """Return a path without dots, if it lies below the root as it is written."""
    plain = os.path.normpath(os.path.join(root, path))
    if "\0" in path or not plain.startswith(f"{root}/"):
        raise RequestError("denied", f"{path} is not below {root}")
    return plain


def opened(root: str, path: str) -> int | None:
    """Open what a path below the root leads to; nothing if it is not there or leads outside.

    Links are followed as they are now; the way that they lead is then gone step by step, so that a
    payload which changes one of them in the meantime gains nothing.
    """
    real = os.path.realpath(inside(root, path))
    if not real.startswith(f"{root}/"):
        return None
    *folders, name = real[len(root) + 1 :].split("/")
    at = os.open(root, _STEP)
    try:
        for one in folders:
            deeper = os.open(one, _STEP, dir_fd=at)
            os.close(at)
            at = deeper
        return os.open(name, _LAST, dir_fd=at)
    except OSError as error:
        error.filename = path
        if error.errno in _NOTHING:
            return None
        raise
    finally:
        os.close(at)


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
        fd = opened(self._root, path)
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
        fd = opened(self._root, path)
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
