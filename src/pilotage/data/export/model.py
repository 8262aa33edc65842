"""Access to an export, and its limits."""

from __future__ import annotations

import msgspec

#: The name under which clients know the host key, whatever port of whatever host leads here.
HOST = "pilotage-export"
#: The only user that the server of an export knows.
USER = "job"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """All that a client needs to mount an export."""

    #: The port on 127.0.0.1 of this machine.
    port: int
    user: str
    #: The first bytes of each connection: they name the export, before SSH begins.
    token: str
    #: The text of a private key that opens this export and nothing else.
    private_key: str
    #: The line of a `known_hosts` file, for the name `HOST`.
    host_key: str


class ExportLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one export; a client that exceeds `size` or `entries` loses it."""

    #: Bytes that clients may send in all, and the largest file. What they write is never more.
    size: int = 64 << 30
    #: Files, folders and links in the folder.
    entries: int = 100_000
    #: Files that one session may have open.
    handles: int = 256
    #: Connections at once.
    connections: int = 8
