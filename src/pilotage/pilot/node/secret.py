"""Keep the secret to ourselves."""

from __future__ import annotations

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
    """Read the secret from where it was left, and leave none there."""
    inherited = env.pop(VARIABLE, "")
    if file == "-":
        text = sys.stdin.readline()
    elif file:
        text = _taken(file)
    else:
        text = inherited
    secret = text.strip()
    if not _SHAPE.fullmatch(secret):
        raise SecretError("the secret is missing or no token; give it with --secret-file FILE or -")
    return secret


def _taken(file: str) -> str:
    try:
        with open(file, encoding="ascii", errors="replace") as source:
            text = source.read(4096)
        os.unlink(file)
    except OSError as error:
        raise SecretError(f"cannot take the secret from {file}: {error.strerror}") from error
    return text
