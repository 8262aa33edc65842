"""Names of files that come from a site are not to be trusted."""

from __future__ import annotations

from pilotage.base import errors, text
from pilotage.data.transfer.names import DIGEST, aside, check, inside

__all__ = ["DIGEST", "aside", "check", "check_digest", "inside"]


def check_digest(sha256: str, size: int) -> None:
    """Raise `Denied` for what no file can have: digests become parts of names here."""
    if not DIGEST.fullmatch(sha256) or size < 0:
        raise errors.Denied(f"the site says {text.show(sha256)!r} of {size} bytes: no such file")
