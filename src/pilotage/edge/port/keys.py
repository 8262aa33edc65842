"""Credentials of an agent: a token to enrol, then a key of its own that it renews.

A new key is on disk before the hub gets it, and the previous one stays beside it until the hub has
answered. If either side is killed in between, one of the two is valid.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio.to_thread
import msgspec

from pilotage.base import crash, durable, errors
from pilotage.data.transfer.version import Version
from pilotage.edge.port import model
from pilotage.link.dialer import HubConnection
from pilotage.node.dial import Route

#: Within the state folder.
FILE = "hub-key.json"
#: Seconds after which a key is followed by another.
RENEW_S = 86_400.0
_HINT = "`pilotage token new agent --site NAME` at the hub makes a token for `hub.token_file`"


class Proof(msgspec.Struct, frozen=True, omit_defaults=True):
    """The keys of an agent."""

    #: The last valid key, and since when; empty before it has enrolled.
    key: str = ""
    since: float = 0.0
    #: Its successor; the hub may know it already.
    next: str = ""
    #: The digest of the token that it enrolled with: that is used up.
    used: str = ""


class AgentKeys:
    """Keeps the keys of one agent where only it can read them."""

    def __init__(self, state: Path, token_file: str, now: Callable[[], float]) -> None:
        """Take the folder that keeps them, and the file of the token for the first time."""
        self._file, self._token_file, self._now = state / FILE, token_file, now

    def tries(self) -> list[tuple[str, str]]:
        """Return credentials to try, the likeliest first, each with the key that follows it.

        That key is on disk when this returns.
        """
        proof = self._read()
        token = self._token()
        if token and _digest(token) == proof.used:
            token = ""
        found = [proof.next, proof.key, token]
        old = self._now() >= proof.since + RENEW_S
        if not proof.next and (old or token or not proof.key):
            proof = msgspec.structs.replace(proof, next=f"pil_g_{secrets.token_urlsafe(32)}")
            self._write(proof)
            crash.point("link.proposed")
        return [(one, proof.next or one) for one in found if one]

    def settle(self, proved: str, key: str) -> None:
        """Store the key that is valid now."""
        proof = self._read()
        if proof.key != key or proof.next:
            used = _digest(proved) if proved == self._token() else proof.used
            self._write(Proof(key, self._now(), used=used))
            crash.point("link.settled")

    def now(self) -> str:
        """Return the valid key; raise `NeedsCredential` before there is one."""
        if key := self._read().key:
            return key
        raise errors.NeedsCredential("this agent has not enrolled yet", hint=_HINT)

    def version(self) -> object:
        """Return a version that changes with the key."""
        return Version.at(str(self._file))

    def _token(self) -> str:
        if not self._token_file:
            return ""
        try:
            with open(self._token_file, encoding="utf-8") as opened:
                mode = os.fstat(opened.fileno()).st_mode
                found = opened.read().strip()
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise errors.ConfigError(f"{self._token_file} cannot be read: {error}") from error
        # A used token opens nothing.
        if found and stat.S_IMODE(mode) & 0o077 and _digest(found) != self._read().used:
            message = f"others may read the token in {self._token_file}"
            raise errors.ConfigError(message, hint=f"`chmod 600 {self._token_file}`")
        return found

    def _read(self) -> Proof:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Proof)
        except FileNotFoundError:
            return Proof()
        except (OSError, msgspec.MsgspecError) as error:
            raise errors.ConfigError(f"{self._file} cannot be read: {error}", hint=_HINT) from error

    def _write(self, proof: Proof) -> None:
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            durable.write(self._file, msgspec.json.encode(proof), mode=0o600)
        except OSError as error:
            raise errors.Unavailable(f"{self._file} cannot be written: {error.strerror}") from error


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


@contextlib.asynccontextmanager
async def dial(
    way: Callable[[], Route], site: str, keys: AgentKeys, beat: float,
    hear: Callable[[dict[str, Any]], None], *, versions: model.Versions = model.VERSIONS,
) -> AsyncIterator[HubConnection]:  # fmt: skip
    """Connect as the agent of a site, with the first credential that is accepted."""
    route = await anyio.to_thread.run_sync(way)
    refused: errors.PilotageError = errors.Denied("this agent has no key", hint=_HINT)
    for token, key in await anyio.to_thread.run_sync(keys.tries):
        async with contextlib.AsyncExitStack() as stack:
            opened = HubConnection.open(
                route, "agent", hear, versions=versions, site=site, token=token, key=key,
                beat=beat,
            )  # fmt: skip
            try:
                line = await stack.enter_async_context(opened)
            except errors.Denied as error:
                refused = error
                continue
            await anyio.to_thread.run_sync(keys.settle, token, key)
            yield line
            return
    raise refused
