"""Which shell a site has."""

from __future__ import annotations

from pathlib import Path

from pilotage.batch.model import Site
from pilotage.batch.shell.here import Here
from pilotage.batch.shell.model import Shell
from pilotage.batch.shell.ssh import Ssh


def choose(name: str, site: Site, state: Path) -> Shell:
    """Return the way to a site; `state` is the state folder of the project."""
    if not site.host:
        return Here()
    return Ssh(name, site.host, state, settings=site.ssh_config)
