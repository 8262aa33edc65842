"""GridFTP as it was: only where `globus-url-copy` is still installed, and by manifest."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Sequence
from typing import ClassVar

from pilotage.base import errors
from pilotage.data.transfer import allow, program, trouble
from pilotage.data.transfer.allow import Allowed
from pilotage.data.transfer.keys import NONE, Keys
from pilotage.data.transfer.model import UNKNOWN, Flags, Item, Listing
from pilotage.data.transfer.url import Url

PROGRAM = "globus-url-copy"


def command(listed: str) -> list[str]:
    """Build the call that moves pairs of URLs, making folders on the way."""
    return [PROGRAM, "-nodcau", "-create-dest", "-restart", "-f", listed]


def pairs(base: Url, items: Sequence[Item], folder: str, *, send: bool) -> str:
    """Write what goes where, one pair a line."""
    lines = []
    for item in items:
        here = Url("file", path=os.path.join(folder, item.name))
        there = base.join(item.name)
        ends = [f"file://{here.quoted}", f"gsiftp://{there.place}{there.quoted}"]
        lines.append(" ".join(f'"{end}"' for end in (ends if send else reversed(ends))))
    return "".join(f"{line}\n" for line in lines)


class GridFtp:
    """Files of one host; it cannot be listed, so a folder needs a manifest."""

    flags: ClassVar[Flags] = Flags()

    def __init__(self, allowed: Allowed, keys: Keys = NONE) -> None:
        if shutil.which(PROGRAM) is None:
            raise errors.UsageError(
                f"`gsiftp:` needs {PROGRAM}, which is not installed",
                hint="the Globus Toolkit has ended: use `globus:`, `davs:` or `root:`",
            )
        self._allowed = allowed
        self._env = {"X509_USER_PROXY": keys.certificate} if keys.certificate else {}

    async def close(self) -> None:
        """Nothing is open."""

    async def look(self, url: Url) -> Listing:
        """Take an address for a file of unknown size; only its manifest tells a folder."""
        allow.check(self._allowed, url)
        if url.path.endswith("/"):
            raise errors.NotFound(f"{url} cannot be listed", hint="put a manifest there")
        above, name = url.above
        return Listing(above, folder=False, items=_one(Item(name, UNKNOWN)))

    async def fetch(self, base: Url, items: Sequence[Item], folder: str) -> None:
        """Fetch files by one call."""
        await self._copy(base, pairs(base, items, folder, send=False))

    async def send(self, base: Url, items: Sequence[Item], folder: str) -> None:
        """Send files by one call."""
        allow.check(self._allowed, base, write=True)
        await self._copy(base, pairs(base, items, folder, send=True))

    async def _copy(self, url: Url, listed: str) -> None:
        allow.check(self._allowed, url)
        await allow.check_addresses(self._allowed, url)
        with tempfile.NamedTemporaryFile("w", prefix="pilotage-") as file:
            file.write(listed)
            file.flush()
            said = await program.run(command(file.name), env=self._env)
        if said.status:
            raise trouble.of_words(f"{url.place} by GridFTP", said.words)


async def _one(item: Item) -> AsyncGenerator[Item, None]:
    yield item
