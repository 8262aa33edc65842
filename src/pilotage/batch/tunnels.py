"""Ports of a login node forwarded to this machine; numbers persist over reconnects."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgspec

from pilotage.base import durable, errors
from pilotage.batch.connection import SiteConnection
from pilotage.batch.login import HelperInfo

_LOOK_S = 1.0


class OpenTunnel(msgspec.Struct, frozen=True):
    """A door as it is now."""

    #: The connection that it came with, and goes with.
    by: HelperInfo
    #: The port here, and its number at the login node.
    port: int
    number: int


class Tunnels:
    """Ways for worker nodes to this machine, by name.

    Who was told a number must find the same door behind it tomorrow: a pilot that runs for days, a
    folder that is mounted.
    """

    def __init__(self, remote: SiteConnection, file: Path) -> None:
        """Keep in a file which number each door had."""
        self._remote = remote
        self._file = file
        self._open: dict[str, OpenTunnel] = {}
        self._turn = asyncio.Lock()

    @property
    def host(self) -> str:
        """The name by which worker nodes reach the login node."""
        return self._remote.site.login or self._remote.hello.host

    async def open(self, name: str, port: int) -> int:
        """Have a door lead to a port here; return its number at the login node."""
        async with self._turn:
            return await self._lead(name, port)

    async def run(self) -> None:
        """Open all tunnels again after each new connection, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._remote.ready()
            for name in list(self._open):
                # The next turn tries again.
                with contextlib.suppress(errors.PilotageError):
                    async with self._turn:
                        # Asked only now: while we waited it may have been led to another port.
                        await self._lead(name, self._open[name].port)

    async def _lead(self, name: str, port: int) -> int:
        """Open a door, unless it is open and leads there; one at a time."""
        by = await self._remote.ready()
        found = self._open.get(name)
        if found is None or found.by is not by or found.port != port:
            there = await self._remote.shell.forward(port)
            numbers = self._numbers()
            wanted = numbers.get(name)
            said = await self._remote.call("relay", port=there, host=self.host, listen=wanted)
            number = said.get("port")
            if not isinstance(number, int):
                raise errors.Unavailable(f"{self._remote.name} opens no port: {said}")
            found = self._open[name] = OpenTunnel(by, port, number)
            if found.number != wanted:
                self._keep(numbers | {name: found.number})
        return found.number

    def _numbers(self) -> dict[str, int]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, int])
        except (FileNotFoundError, msgspec.DecodeError):
            return {}

    def _keep(self, numbers: dict[str, int]) -> None:
        self._file.parent.mkdir(exist_ok=True)
        durable.swap(self._file, msgspec.json.encode(numbers))
