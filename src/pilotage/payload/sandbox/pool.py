"""Users for payloads that name none: each has one of its own while it runs."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import sys

from .rule import GATEKEEPER

_LISTED = re.compile(re.escape(GATEKEEPER) + r" run ([a-z_][a-z0-9_-]*)")


def users() -> list[str]:
    """List the users that a sudo rule lets us run payloads as."""
    theirs, ours = os.pipe()
    actions = [
        (os.POSIX_SPAWN_DUP2, ours, 1),
        (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0),
    ]
    try:
        pid = os.posix_spawnp("sudo", ["sudo", "-n", "-l"], os.environ, file_actions=actions)
    finally:
        os.close(ours)
    with open(theirs, encoding="utf-8", errors="replace") as file:
        # Lines are broken between words.
        text = " ".join(file.read().split())
    os.waitpid(pid, 0)
    return _LISTED.findall(text)


def take(names: list[str] | None = None) -> str:
    """Choose a user that no other payload of ours has, and hold it until this process ends."""
    home = f"/tmp/pilotage-users-{os.getuid()}"  # noqa: S108 - checked below
    os.makedirs(home, mode=0o700, exist_ok=True)
    what = os.lstat(home)
    if what.st_uid != os.getuid() or not stat.S_ISDIR(what.st_mode):
        sys.exit(f"{home} is not ours")
    for name in users() if names is None else names:
        fd = os.open(f"{home}/{name}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return name
        except BlockingIOError:
            os.close(fd)
    sys.exit("there is no user left that it could run as: name more of them in the sudo rule")
