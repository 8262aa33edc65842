"""The shell of a site: this machine, or `ssh`."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path

from pilotage.base import errors
from pilotage.batch.model import SiteSettings
from pilotage.batch.shell.model import BUFFER, Shell
from pilotage.batch.shell.ssh import SshShell


def choose(name: str, site: SiteSettings, state: Path) -> Shell:
    """Return the shell of a site; `state` is the state folder of the project."""
    if not site.host:
        return LocalShell()
    return SshShell(name, site.host, state, settings=site.ssh_config)


class LocalShell:
    """A shell on this machine."""

    barred = False

    def __init__(self) -> None:
        self._home = os.path.expanduser("~")

    async def connect(self) -> None:
        """Do nothing: there is no connection to make."""

    async def alive(self) -> bool:
        """Return True."""
        return True

    async def start(
        self, argv: Sequence[str], *, stdin: int = PIPE, stdout: int = PIPE, stderr: int = PIPE
    ) -> Process:
        """Start a program in the home directory, as `ssh` does."""
        try:
            # A session of its own: Ctrl-C at our terminal must not end a `sbatch` half-way.
            return await asyncio.create_subprocess_exec(
                *argv, stdin=stdin, stdout=stdout, stderr=stderr, limit=BUFFER,
                cwd=self._home, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise errors.Unavailable(f"cannot start `{argv[0]}`: {error.strerror}") from error

    async def forward(self, port: int) -> int:
        """Return the same port."""
        return port

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
