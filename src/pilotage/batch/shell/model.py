"""The interface of a shell: starts programs at a site."""

from __future__ import annotations

from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from typing import Protocol

#: Bytes that wait to be read of a process before it is held back.
BUFFER = 1 << 20


class Shell(Protocol):
    """A shell on a login node, or on this machine."""

    @property
    def barred(self) -> bool:
        """Whether trying again is of no use before a person has done something."""
        ...

    async def connect(self) -> None:
        """Connect; raise `Unavailable` or `Denied`, with a hint, if that fails."""
        ...

    async def alive(self) -> bool:
        """Return whether there is a connection, without making one."""
        ...

    async def start(
        self, argv: Sequence[str], *, stdin: int = PIPE, stdout: int = PIPE, stderr: int = PIPE
    ) -> Process:
        """Start a program; an error means that it was certainly not started.

        `Denied` means that the login node allows no more programs at once.
        """
        ...

    async def forward(self, port: int) -> int:
        """Return a port of the login node's loopback that leads to a port of this machine's."""
        ...

    async def close(self) -> None:
        """Close forwarded ports; a connection that others may use stays."""
        ...
