"""Tokens that senders must show: read from a file, or made once and kept where only we can read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from pilotage.base import errors


def read(file: Path) -> str:
    """Read a token from a file of the user's."""
    try:
        token = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        message = f"cannot read the token file {file}: {error.strerror}"
        raise errors.ConfigError(message, hint="make it, or leave `token_file` out") from error
    if not token:
        message = f"the token file {file} is empty"
        raise errors.ConfigError(message, hint="put one line of secret text into it")
    return token


def keep(file: Path) -> str:
    """Read our own token, and make it if there is none yet."""
    if not file.exists():
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as fresh:
            fresh.write(secrets.token_urlsafe(32) + "\n")
    return read(file)
