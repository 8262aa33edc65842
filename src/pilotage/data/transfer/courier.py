"""List, fetch and send by URL: the scheme selects the kind, and failures are retried."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from pilotage.base import clock as clocks
from pilotage.base import errors
from pilotage.base.clock import Clock
from pilotage.data.transfer import allow, url
from pilotage.data.transfer.allow import Allowed
from pilotage.data.transfer.fetch import KnownContent, Receipt, content, fetch, look
from pilotage.data.transfer.keys import NONE, Credentials
from pilotage.data.transfer.kind.file import LocalFiles
from pilotage.data.transfer.kind.globus import Globus, LocalCollection
from pilotage.data.transfer.kind.http import Http
from pilotage.data.transfer.kind.hub import HubAddress, HubFiles
from pilotage.data.transfer.kind.objects import Objects
from pilotage.data.transfer.kind.rsync import Rsync
from pilotage.data.transfer.kind.sftp import Sftp
from pilotage.data.transfer.kind.xrootd import Xrootd
from pilotage.data.transfer.manifest import Manifest
from pilotage.data.transfer.model import Flags, TransferKind
from pilotage.data.transfer.retrying import AttemptProgress, RetryPolicy, Sleep, Told, persist
from pilotage.data.transfer.send import send
from pilotage.data.transfer.url import Url

T = TypeVar("T")

#: The kind of each scheme; any other is one of fsspec's.
KINDS: dict[str, type[Sftp | Rsync | Http | Xrootd | Objects]] = {
    "sftp": Sftp, "rsync": Rsync, "rsync+ssh": Rsync, "http": Http, "https": Http,
    "root": Xrootd, "roots": Xrootd,
    "s3": Objects, "gs": Objects, "abfs": Objects, "memory": Objects,
}  # fmt: skip
#: How often a file may differ from its pinned manifest before that is an error.
_DAMAGED = 2


def flags() -> dict[str, Flags]:
    """Return the features of each scheme."""
    return (
        {"file": LocalFiles.flags}
        | {name: kind.flags for name, kind in KINDS.items()}
        | {"globus": Globus.flags, "hub": HubFiles.flags}
    )


class Courier:
    """Transfers the data of one job: allowed addresses, credentials and retries."""

    def __init__(
        self, allowed: Allowed, *, keys: Mapping[str, Credentials] | None = None,
        here: LocalCollection | None = None,
        key: str = "", patience: RetryPolicy | None = None, clock: Clock | None = None,
        dice: random.Random | None = None, sleep: Sleep = asyncio.sleep,
    ) -> None:  # fmt: skip
        """Take credentials by host; `key` is what the job is known by, `here` Globus's."""
        self._allowed = allowed
        self._keys = dict(keys or {})
        self._here = here
        self._key = key
        self._patience = patience or RetryPolicy()
        self._clock = clock or clocks.WallClock()
        self._dice = dice or clocks.dice()
        self._sleep = sleep
        #: The hub that the job comes from, if its own port may have the data.
        self.home: HubAddress | None = None
        #: Receives the reason of each retry.
        self.on_trouble: Told = lambda _: None

    async def look(self, address: str, *, plain: bool = False) -> Manifest:
        """List the files of an address; `plain` means whatever its manifest says."""
        where = self._parse(address)

        async def act(kind: TransferKind, _: AttemptProgress) -> Manifest:
            return await look(kind, where, plain=plain)

        return await self._persist(where, act)

    async def fetch(
        self, address: str, target: str, *, replace: bool = False, spare: int = 0, pinned: str = "",
        known: KnownContent | None = None,
    ) -> Receipt:  # fmt: skip
        """Bring a file or a folder into a folder here; see `fetch.fetch`.

        Where a manifest is pinned, a file that differs from it after a second fetch differs at
        its source: that raises `Conflict`.
        """
        where = self._parse(address)
        damaged = 0

        async def act(kind: TransferKind, steps: AttemptProgress) -> Receipt:
            nonlocal damaged
            try:
                return await fetch(
                    kind, where, target, replace=replace, steps=steps, spare=spare,
                    pinned=pinned, known=known,
                )  # fmt: skip
            except errors.Damaged as error:
                damaged += 1
                if pinned and damaged >= _DAMAGED:
                    raise errors.Conflict(f"{where}: {error.message}") from error
                raise

        return await self._persist(where, act)

    async def content(self, address: str, most: int) -> bytes:
        """Read a small file without verifying it."""
        where = self._parse(address)

        async def act(kind: TransferKind, _: AttemptProgress) -> bytes:
            return await content(kind, where, most)

        return await self._persist(where, act)

    async def send(
        self, source: str, address: str, *, replace: bool = False, resend: bool = False
    ) -> Receipt:
        """Put a file or a folder into the folder that an address names; see `send.send`."""
        where = self._parse(address, write=True)

        async def act(kind: TransferKind, steps: AttemptProgress) -> Receipt:
            return await send(kind, source, where, replace=replace, resend=resend, steps=steps)

        return await self._persist(where, act)

    async def clear(self, address: str, aside: str) -> None:
        """Remove a folder with all that is in it; `aside` is what it is called meanwhile.

        A folder that is missing, or that another process is removing, is no error.
        """
        where = self._parse(address, write=True)
        hidden = self._parse(aside, write=True)

        async def act(kind: TransferKind, _: AttemptProgress) -> None:
            if not isinstance(kind, LocalFiles | Sftp | Http):
                raise errors.UsageError(f"folders of `{where.scheme}:` cannot be removed")
            await kind.clear(where, hidden)

        await self._persist(where, act)

    def _parse(self, address: str, *, write: bool = False) -> Url:
        where = url.parse(address)
        allow.check(self._allowed, where, write=write)
        return where

    async def _persist(
        self, where: Url, act: Callable[[TransferKind, AttemptProgress], Awaitable[T]]
    ) -> T:
        keys = self._keys.get(where.host, NONE)

        async def attempt(steps: AttemptProgress) -> T:
            kind = self._kind(where, keys)
            try:
                return await act(kind, steps)
            finally:
                await kind.close()

        return await persist(
            attempt, self._patience, clock=self._clock, dice=self._dice, sleep=self._sleep,
            credential=self._version(where, keys), told=self.on_trouble,
        )  # fmt: skip

    def _version(self, where: Url, keys: Credentials) -> Callable[[], object]:
        return self.home.version if self.home and where.scheme == "hub" else keys.version

    def _kind(self, where: Url, keys: Credentials) -> TransferKind:
        if where.scheme == "file":
            return LocalFiles(self._allowed)
        if where.scheme == "globus":
            if self._here is None:
                raise errors.UsageError("this site has no collection of Globus")
            return Globus(self._allowed, keys, self._here, key=self._key)
        if where.scheme == "hub":
            if self.home is None:
                message = f"{where} is at the port of a hub, and this site dials none"
                raise errors.UsageError(message, hint="`flows.data` names a transfer server")
            return HubFiles(self.home)
        kind = KINDS.get(where.scheme)
        if kind is None:
            hint = f"known are {', '.join(flags())}"
            raise errors.UsageError(f"the scheme `{where.scheme}` is not known", hint=hint)
        return kind(self._allowed, keys)
