"""Keep the secret to ourselves."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
from collections.abc import MutableMapping

VARIABLE = "PILOTAGE_SECRET"

_PR_SET_DUMPABLE = 4
_SHAPE = re.compile(r"pil_[a-z]_[A-Za-z0-9_-]{8,200}")


class SecretError(Exception):
    """There is no secret that could be used."""


def hide() -> None:
    """Let no process of the same user read our memory or environment, not even after a crash."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def take(file: str, env: MutableMapping[str, str]) -> str:
    """Read the secret from where it was left; `forget` removes its file later."""
    inherited = env.pop(VARIABLE, "")
    if file == "-":
        text = sys.stdin.readline()
    elif file:
        text = _read(file)
    else:
        text = inherited
    secret = text.strip()
    if not _SHAPE.fullmatch(secret):
        raise SecretError("the secret is missing or no token; give it with --secret-file FILE or -")
    return secret


def forget(file: str) -> None:
    """Remove the file of a secret that has been used, before any payload could read it."""
    if file and file != "-":
        with contextlib.suppress(OSError):
            os.unlink(file)


def _read(file: str) -> str:
    try:
        with open(file, encoding="ascii", errors="replace") as source:
            return source.read(4096)
    except FileNotFoundError:
        raise SecretError(
            f"there is no file {file}; a pilot that has enrolled removes its token's file, so give "
            f"each pilot a copy of its own, or --secret-file - < FILE"
        ) from None
    except OSError as error:
        raise SecretError(f"cannot read the secret in {file}: {error.strerror}") from error
