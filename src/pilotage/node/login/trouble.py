"""Errors as the hub is told of them."""

from __future__ import annotations

import errno

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


class Trouble(Exception):
    """A request that cannot be granted."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind


def told(error: BaseException) -> dict[str, str]:
    """Say what went wrong, with the path if there is one."""
    if isinstance(error, Trouble):
        return {"error": str(error), "kind": error.kind}
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        words = error.strerror or str(error)
        return {"error": f"{where}{words}", "kind": _KINDS.get(error.errno or 0, "other")}
    if isinstance(error, (KeyError, TypeError, ValueError, AttributeError, IndexError)):
        return {"error": f"the request is not understood: {error!r}", "kind": "usage"}
    return {"error": repr(error), "kind": "other"}
