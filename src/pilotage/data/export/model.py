"""The nouns of jails: how one is reached, and how much it may hold."""

from __future__ import annotations

import msgspec

#: The name under which clients know our host key, whatever port of whatever host leads to us.
HOST = "pilotage-jail"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """All that opens a jail."""

    #: The port on 127.0.0.1 of this machine.
    port: int
    user: str
    #: The text of a private key that opens this jail and nothing else.
    private_key: str
    #: The line of a `known_hosts` file, for the name `HOST`.
    host_key: str


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much the client of a jail may take of this machine."""

    #: Bytes that it may add to the folder.
    size: int = 64 << 30
    #: Files, folders and links that it may add.
    entries: int = 100_000
    #: Files and listings that it may have open at once.
    handles: int = 256
    #: Connections that it may have at once.
    connections: int = 8
    #: Requests that are served in a second.
    rate: float = 8000.0
