"""Who comes in: a key that opens a jail gets SFTP in that jail, and nothing else is to be had.

This module needs the extra `ssh`, so it is imported only when a jail is opened.
"""

from __future__ import annotations

import logging
from typing import cast

import asyncssh
from asyncssh.channel import SSHChannel
from asyncssh.stream import SSHServerStreamSession

from .cell import Connection, Server, Warden
from .session import Session

#: Channels that one connection may ask for in its life; `sshfs` asks for one.
_CHANNELS = 32
#: The version of SFTP that every client speaks; later ones have more ways to say things.
_VERSION = 3
_LOGIN_SECONDS = 20.0
_KEEPALIVE_SECONDS = 30.0
_ALGORITHM = "ssh-ed25519"


def keys() -> tuple[str, bytes]:
    """Make a key: the text of the private one, and the public one as clients show it."""
    key = asyncssh.generate_private_key(_ALGORITHM)
    return key.export_private_key().decode(), key.public_data


async def listen(warden: Warden) -> tuple[Server, str]:
    """Open a port that only this machine reaches; return it with its public key."""
    # Every connection would be told of in the hub's log.
    asyncssh.set_log_level(logging.WARNING)
    key = asyncssh.generate_private_key(_ALGORITHM)
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=lambda: Door(warden),
        server_host_keys=[key],
        # Nothing of what this machine's own SSH is set up for.
        config=None,
        gss_host=None,
        authorized_client_keys=None,
        public_key_auth=True,
        password_auth=False,
        kbdint_auth=False,
        host_based_auth=False,
        agent_forwarding=False,
        x11_forwarding=False,
        allow_scp=False,
        line_editor=False,
        allow_pty=False,
        compression_algs=["none"],
        login_timeout=_LOGIN_SECONDS,
        keepalive_interval=_KEEPALIVE_SECONDS,
        keepalive_count_max=4,
    )
    return server, key.export_public_key().decode().strip()


class Door(asyncssh.SSHServer):
    """One connection; what is not answered here is refused by the class above."""

    def __init__(self, warden: Warden) -> None:
        self._warden = warden
        self._user = ""
        self._channels = 0

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Let a stranger wait."""
        self._connection: Connection = conn
        self._told = conn.get_extra_info
        if not self._warden.arrived(conn):
            conn.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        """Forget it."""
        self._warden.left(self._user, self._connection)

    def begin_auth(self, username: str) -> bool:
        """Ask everybody for a key, also those whom nobody knows."""
        self._user = username
        return True

    def public_key_auth_supported(self) -> bool:
        """Take keys."""
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Tell whether a key opens the jail of this user."""
        return self._warden.knows(username, key.public_data)

    def auth_completed(self) -> None:
        """Let it in, unless its jail was closed meanwhile."""
        self._user = str(self._told("username"))
        if not self._warden.admitted(self._user, self._connection):
            self._connection.abort()

    def session_requested(self) -> asyncssh.SSHServerSession[bytes] | bool:
        """Give a session that can become SFTP, but no shell, no command and no other subsystem."""
        self._channels += 1
        if self._channels > _CHANNELS:
            return False
        return SSHServerStreamSession(None, self._session, _VERSION)

    def _session(self, channel: SSHChannel[bytes]) -> Session:
        cell = self._warden.cell(self._user)
        if cell is None:
            raise asyncssh.SFTPPermissionDenied("this sandbox is closed")
        return Session(cast("asyncssh.SSHServerChannel[bytes]", channel), cell)
