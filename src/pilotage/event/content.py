"""SHA-256 of the content of a file."""

from __future__ import annotations

import hashlib

_CHUNK = 1 << 20


def sha256(path: str) -> str | None:
    """Hash a file; nothing if it cannot be read."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError:
        return None
    return digest.hexdigest()
