"""Output of payloads on other machines, stored with their attempts."""

from __future__ import annotations

import base64
import logging
import os

from pilotage.base import durable
from pilotage.job import moves

_log = logging.getLogger("pilotage.pilot")
#: Bytes of the output of a payload that are kept.
_MOST = 1 << 30


def write(root: str, job: int, attempt: int, stream: str, at: int, data: str) -> None:
    """Keep what a payload wrote; a full disk must not keep us from hearing how it ended.

    `at` is where it belongs, or negative for the end; `data` is base64.
    """
    try:
        put(root, job, attempt, stream, at, base64.b64decode(data))
    except (OSError, ValueError) as error:
        _log.warning("the output of job %d is lost: %s", job, error)


def put(
    root: str, job: int, attempt: int, stream: str, at: int, data: bytes, *, last: bool = False
) -> None:
    """Keep what a payload wrote, or raise `OSError`; what is behind its `last` part goes."""
    folder = moves.attempt_dir(root, job, attempt)
    # A pipe or another special file must not block us.
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    os.makedirs(folder, exist_ok=True)
    with open(os.open(f"{folder}/{stream}", flags, 0o600), "wb", buffering=0) as file:
        begin = file.seek(0, os.SEEK_END) if at < 0 else at
        if begin < _MOST:
            durable.write_all(file.fileno(), data, begin)
            if last:
                file.truncate(begin + len(data))
