"""The sudo rule and gatekeeper that an administrator installs for the kind `user`."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Sequence

#: Where the gatekeeper must be: a file that only root can change.
GATEKEEPER = "/usr/local/sbin/pilotage-gatekeeper"

_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


def is_name(name: str) -> bool:
    """Return whether this is a plain name of a user, which means nothing else to sudo."""
    return _NAME.fullmatch(name) is not None


def sudoers(pilot: str, users: Sequence[str]) -> str:
    """Write the rule that lets a pilot's user run payloads as some others, and nothing else."""
    for name in (pilot, *users):
        if not is_name(name):
            raise ValueError(f"{name!r} cannot be the name of a user")
    if not users or pilot in users:
        raise ValueError("a payload needs users other than the pilot's own")
    commands = [f"{GATEKEEPER} {verb} {name}" for name in users for verb in ("run", "sweep")]
    listed = ", \\\n    ".join(commands)
    return (
        f"# /etc/sudoers.d/pilotage, mode 0440: {pilot} may run payloads as these users.\n"
        f"Defaults!{GATEKEEPER} env_reset, !requiretty, !use_pty, umask=0022\n"
        f"{pilot} ALL=(root) NOPASSWD: \\\n    {listed}\n"
    )


def gatekeeper() -> str:
    """Return the text of the gatekeeper, to be installed with mode 0755 and owned by root."""
    data = pkgutil.get_data(__package__ or "sandbox", "gatekeeper.py")
    if data is None:
        raise FileNotFoundError("gatekeeper.py")
    return data.decode()
