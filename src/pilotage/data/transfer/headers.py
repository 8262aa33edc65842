"""HTTP headers of files: type, digest, and executable flag."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping

#: Of a file at a hub's port: it may be run.
EXECUTABLE = "pilotage-executable"
#: The media type of folders.
FOLDER = "httpd/unix-directory"
_DIGEST = re.compile(r"sha-256=:?([A-Za-z0-9+/]+={0,2})", re.IGNORECASE)


def digest(headers: Mapping[str, str]) -> str:
    """Read the SHA-256 of a file off an answer, if it tells."""
    found = _DIGEST.search(headers.get("repr-digest", "") or headers.get("digest", ""))
    if not found:
        return ""
    try:
        raw = base64.b64decode(found[1], validate=True)
    except binascii.Error:
        return ""
    return raw.hex() if len(raw) == 32 else ""


def digest_header(sha256: str) -> dict[str, str]:
    """Write the SHA-256 of what is sent, so that a server can check it; none if it is not known."""
    raw = base64.b64encode(bytes.fromhex(sha256)).decode()
    return {"Repr-Digest": f"sha-256=:{raw}:"} if raw else {}
