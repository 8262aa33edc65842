"""`pilotage site login|logout`: open and close the connection to a site."""

from __future__ import annotations

import asyncio
from typing import Annotated

from cyclopts import Parameter

from pilotage.base import errors, units
from pilotage.batch import files
from pilotage.batch.shell.ssh import SshShell
from pilotage.cli.answer import Answer, Styled, line
from pilotage.cli.common import HERE, Common

_Name = Annotated[str, Parameter(help="Name of the site.")]


def login(
    name: _Name,
    /,
    *,
    stay: Annotated[
        str, Parameter(help="How long the connection stays when nothing uses it, else 12h.")
    ] = "12h",
    at: Common = HERE,
) -> Answer:
    """Log in to a site: `ssh` asks here, and the hub uses the connection."""
    seconds = int(units.seconds(stay))
    if seconds < 1:
        raise errors.UsageError("`--stay` must be above 0", hint="`--stay 12h`")
    shell = _shell(name, at)
    there = asyncio.run(shell.alive())
    if not there:
        shell.login(f"{seconds}s")
        if not asyncio.run(shell.alive()):
            message = f"the connection to {shell.host} is gone already"
            raise errors.Unavailable(message, hint=f"`pilotage site check {name}`")
    word = "was connected already" if there else "connected"
    said = line(f"{name} ", Styled(word, "green"))
    long = units.for_people(seconds)
    notes = () if there else (f"it stays until {long} after its last use, or `site logout {name}`",)
    return Answer({"site": name, "new": not there, "stay": seconds}, (said,), (name,), notes)


def logout(name: _Name, /, *, at: Common = HERE) -> Answer:
    """Close the connection to a site; jobs there continue."""
    shell = _shell(name, at)
    there = asyncio.run(shell.logout())
    said = line(f"{name} ", Styled("disconnected" if there else "was not connected", "dim"))
    return Answer({"site": name, "was_connected": there}, (said,), (name,))


def _shell(name: str, at: Common) -> SshShell:
    with at.open() as project:
        site = files.read(project.root, name)
        state = project.state
    if not site.host:
        message = f"{name} is on this machine: there is nothing to log in to"
        raise errors.UsageError(message)
    return SshShell(name, site.host, state, settings=site.ssh_config)
