"""A site has one agent: whose it is stands in a file where all its login nodes see it.

Another agent with a store of its own would not know which messages were taken, nor which jobs are
out. So it is not begun by itself, whatever became of the first one: a person must say so.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import msgspec

from pilotage.base import durable, errors

_OVER = "stop that one, and see that its jobs are over; then: `pilotage agent run --take-over`"


class Owner(msgspec.Struct, frozen=True):
    """Which agent serves a site."""

    #: The identity of its store.
    store: str
    host: str
    since: float


def file_of(folder: str, site: str) -> Path:
    """Name the file, below the folder that login nodes share."""
    return Path.home() / folder / f"agent-{site}.json"


def me(store: str, now: float) -> Owner:
    """Describe the agent of this process."""
    return Owner(store, socket.gethostname(), now)


def take(file: Path, mine: Owner, *, over: bool = False) -> None:
    """Be the agent of a site, or raise `Conflict` if another is; `over` takes it from that one."""
    try:
        durable.folder(file.parent, mode=0o700)
        if over:
            durable.write(file, msgspec.json.encode(mine))
        else:
            with contextlib.suppress(FileExistsError):
                durable.create(file, msgspec.json.encode(mine))
    except OSError as error:
        raise errors.Unavailable(f"{file} cannot be written: {error.strerror}") from error
    check(file, mine)


def check(file: Path, mine: Owner) -> None:
    """Raise `Conflict` unless this is still the agent of the site."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Owner)
    except OSError:
        # Nobody has taken it over, as far as one can see now.
        return
    except msgspec.MsgspecError as error:
        message = f"{file} does not say who serves this site: {error}"
        raise errors.Conflict(message, hint=_OVER) from error
    if (found.store, found.host) != (mine.store, mine.host):
        message = f"an agent at {found.host} serves this site ({file})"
        raise errors.Conflict(message, hint=_OVER)
