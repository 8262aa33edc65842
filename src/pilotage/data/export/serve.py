"""The SFTP server of all jails: one port of this machine, open only while there is a jail."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Self

import anyio
import anyio.to_thread

from pilotage.base import errors

from .cell import Cell, Connection, Server
from .model import HOST, Access, Bounds
from .room import Pace
from .walls import Jail

#: Threads that wait for the disk, so that the event loop does not.
_THREADS = 8
#: Connections that have not shown a key yet.
_STRANGERS = 64
_PLAIN = Bounds()


class Jails:
    """Serves folders of this machine, each by SFTP to the holder of its own key."""

    def __init__(self) -> None:
        self._cells: dict[str, Cell] = {}
        self._users: dict[str, Cell] = {}
        self._strangers: set[Connection] = set()
        self._lock = anyio.Lock()
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._server: Server | None = None
        self._host_key = ""

    async def __aenter__(self) -> Self:
        """Begin with no jail and no port."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close every jail, and the port with them."""
        with anyio.CancelScope(shield=True):
            for name in list(self._cells):
                await self.close(name)

    async def open(
        self, name: str, folder: Path, *, readonly: Collection[str], bounds: Bounds = _PLAIN
    ) -> Access:
        """Serve a folder until the jail of this name is closed; `readonly` are names within it."""
        door = _door()
        async with self._lock:
            if name in self._cells:
                raise errors.Conflict(f"there is a jail {name} already")
            jail = await anyio.to_thread.run_sync(Jail, str(folder), readonly, bounds)
            try:
                server = self._server or await self._listen(door)
            except OSError as error:
                jail.close()
                raise errors.Unavailable(f"no port for the data of jobs: {error}") from error
            private, public = door.keys()
            user = f"j{secrets.token_hex(12)}"
            cell = Cell(jail, user, public, bounds, Pace(bounds.rate), self._threads)
            self._cells[name] = self._users[user] = cell
        return Access(
            port=server.get_port(), user=user, private_key=private, host_key=self._host_key
        )

    async def close(self, name: str) -> None:
        """Cut off whoever is in a jail and shut it; its key opens nothing from now on."""
        cell = self._cells.pop(name, None)
        if cell is None:
            return
        del self._users[cell.user]
        for connection in list(cell.connections):
            connection.abort()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(cell.jail.close)
            async with self._lock:
                if not self._cells:
                    await self._stop()

    async def _listen(self, door: ModuleType) -> Server:
        server: Server
        server, public = await door.listen(self)
        self._server, self._host_key = server, f"{HOST} {public}"
        return server

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for connection in list(self._strangers):
                connection.abort()
            await server.wait_closed()

    # -- what the door asks ----------------------------------------------------------------------

    def arrived(self, connection: Connection) -> bool:
        """Let a stranger wait at the door, unless too many do."""
        if len(self._strangers) >= _STRANGERS or self._server is None:
            return False
        self._strangers.add(connection)
        return True

    def knows(self, user: str, public: bytes) -> bool:
        """Tell whether a key opens the jail of a user."""
        cell = self._users.get(user)
        return cell is not None and secrets.compare_digest(cell.public, public)

    def admitted(self, user: str, connection: Connection) -> bool:
        """Let a stranger in, if its jail is still open and not crowded."""
        self._strangers.discard(connection)
        cell = self._users.get(user)
        if cell is None or len(cell.connections) >= cell.bounds.connections:
            return False
        cell.connections.add(connection)
        return True

    def cell(self, user: str) -> Cell | None:
        """Find the jail of a user, if it is open."""
        return self._users.get(user)

    def left(self, user: str, connection: Connection) -> None:
        """Forget a connection."""
        self._strangers.discard(connection)
        if cell := self._users.get(user):
            cell.connections.discard(connection)


def _door() -> ModuleType:
    """Load what needs the extra."""
    try:
        from . import door
    except ImportError as error:
        hint = "pip install 'pilotage[ssh]', or write `data = \"staged\"`"
        raise errors.Unavailable(f"mounted data needs asyncssh ({error})", hint=hint) from error
    return door
