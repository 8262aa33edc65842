"""The file for `ssh -F`: with it nothing in ~/.ssh is read or written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .server import Server

COMMON = """\
Host *
    User {user}
    IdentityFile {key}
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {known_hosts}
    GlobalKnownHostsFile none
    StrictHostKeyChecking yes
    LogLevel ERROR
"""


def write(path: Path, user: str, key: Path, servers: Iterable[Server]) -> None:
    """Write an entry for each server, and beside it who they are known to be."""
    servers = [*servers]
    known = path.with_name("known_hosts")
    known.write_text("".join(f"{server.known_host}\n" for server in servers))
    common = COMMON.format(user=user, key=key, known_hosts=known)
    path.write_text("\n\n".join([*(server.entry for server in servers), common]))
