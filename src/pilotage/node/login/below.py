"""Paths below the project's folder, and no way out of it by symbolic links."""

from __future__ import annotations

import errno
import os
import re

from .trouble import Trouble

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
#: Nothing is there, or a link, a device or a socket.
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
_STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LAST = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def check_key(key: object) -> str:
    """Return the key of a submission, if it is one."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise Trouble("usage", f"{key!r} is no key of a submission")
    return key


def check_digest(digest: object) -> str:
    """Return the digest of a file, if it is one."""
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise Trouble("usage", f"{digest!r} is no digest")
    return digest


def inside(root: str, path: str) -> str:
    """Return a path without dots, if it lies below the root as it is written."""
    plain = os.path.normpath(os.path.join(root, path))
    if "\0" in path or not plain.startswith(f"{root}/"):
        raise Trouble("denied", f"{path} is not below {root}")
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
