"""A jail that is open, and all that comes and goes there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import anyio

from .model import Bounds
from .room import Pace
from .walls import Jail


class Connection(Protocol):
    """Somebody who is connected."""

    def abort(self) -> None:
        """Cut the connection off."""


class Server(Protocol):
    """An open port."""

    def get_port(self) -> int:
        """Tell its number."""

    def close(self) -> None:
        """Take no more connections."""

    async def wait_closed(self) -> None:
        """Wait until it is closed."""


@dataclass
class Cell:
    """A jail, the key that opens it, and those who are in it."""

    jail: Jail
    user: str
    public: bytes
    bounds: Bounds
    pace: Pace
    #: The threads in which all jails wait for the disk.
    threads: anyio.CapacityLimiter
    connections: set[Connection] = field(default_factory=set)


class Warden(Protocol):
    """Who knows the keys."""

    def arrived(self, connection: Connection) -> bool:
        """Let a stranger wait at the door, or not."""

    def knows(self, user: str, public: bytes) -> bool:
        """Tell whether a key opens the jail of a user."""

    def admitted(self, user: str, connection: Connection) -> bool:
        """Let a stranger in, or not."""

    def cell(self, user: str) -> Cell | None:
        """Find the jail of a user, if it is open."""

    def left(self, user: str, connection: Connection) -> None:
        """Forget a connection."""
