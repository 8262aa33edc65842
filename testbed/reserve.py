"""Numbers that one process alone may use while it lives, whatever else runs on this machine.

Ports and networks must be known before somebody listens there, so a look at what is free is not
enough: two processes would see the same. Each number is a file, and to hold it is to hold a lock.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import secrets
import tempfile
from pathlib import Path

from .errors import NotUp
from .journal import FOLDER

#: How many groups of networks there are, and how many networks are in a group.
_GROUPS, _IN_GROUP = 7200, 4


def take(kind: str, count: int) -> int:
    """Reserve one of the numbers below `count` until this process ends."""
    folder = _folder()
    start = secrets.randbelow(count)
    for number in itertools.chain(range(start, count), range(start)):
        # Kept open, and so locked, until the process ends.
        lock = os.open(folder / f"{kind}-{number}", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return number
    raise NotUp(f"each of {count} {kind} is taken by another process")


def networks() -> list[str]:
    """Reserve four networks that follow each other; return the first three numbers of each."""
    group = take("networks", _GROUPS)
    second, third = divmod(group * _IN_GROUP, 240)
    return [f"10.{128 + second}.{third + each}" for each in range(_IN_GROUP)]


def _folder() -> Path:
    """Return where the locks are: for root those of the machine, otherwise those of the user."""
    user = os.geteuid()
    folder = Path(tempfile.gettempdir(), f"pilotage-reserved-{user}") if user else FOLDER / "taken"
    folder.mkdir(mode=0o700 if user else 0o755, parents=True, exist_ok=True)
    return folder
