"""Publishing of files of the project, and of many inputs as one, where sites can read them."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import stat
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from pilotage.base import errors, paths, text
from pilotage.data.transfer import tree
from pilotage.data.transfer.version import Version
from pilotage.edge import folders, reach
from pilotage.edge import handoff as hand
from pilotage.edge.handoff import HUB, DataStores, InputPiece
from pilotage.edge.reach import Reach

#: No step can have this name.
INPUTS = "~inputs"
#: What a folder is called while it is removed.
ASIDE = ".cleared-"
#: Files of the project that were published and are remembered.
_MOST = 1000


def _ignore(_: str) -> None:
    """Ignore the name of what was published."""


class Publisher:
    """Puts data where sites can read it; the same is put there once."""

    def __init__(self, here: Reach, stores: DataStores, root: Path, scratch: Path) -> None:
        """Take the folder of the project, and a private folder."""
        self._reach, self._stores = here, stores
        self._root, self._scratch = root, scratch
        self._known: OrderedDict[str, tuple[str, str, bool]] = OrderedDict()
        self._lock = anyio.Lock()

    async def own(
        self, flow: str, piece: InputPiece, used: Callable[[str], None] = _ignore
    ) -> InputPiece:
        """Publish a file or folder of the project for tasks of a flow.

        `used` gets its name before anything can remove it.
        """
        path = await run_sync(_path, self._root, piece.url)
        version = await run_sync(_version, path)
        name = f"{flow}/{INPUTS}/{hand.word(piece.url)[:60]}-{version}/"
        async with self._lock:
            # Thousands of tasks may read the same; it is read through once.
            if name not in self._known:
                self._known[name] = await self._send(path, name)
                while len(self._known) > _MOST:
                    self._known.popitem(last=False)
            url, sha256, folder = self._known[name]
            used(name)
        if folder:
            return InputPiece(url, piece.path.rstrip("/"), sha256)
        return InputPiece(hand.address(url, os.path.basename(path)), piece.path, sha256)

    def small(self, name: str, most: int) -> bytes | None:
        """Read a file of the project up to a maximal size.

        Return nothing for a larger one, a program, a folder, and one that changes meanwhile.
        """
        path = _path(self._root, name)
        with paths.opened(os.path.dirname(path), os.path.basename(path)) as file:
            before = os.fstat(file)
            if not stat.S_ISREG(before.st_mode) or before.st_mode & 0o111 or before.st_size > most:
                return None
            found = os.read(file, most + 1)
            same = Version.of(os.fstat(file)) == Version.of(before)
        return found if same and len(found) == before.st_size else None

    async def remove(self, name: str, unused: Callable[[], bool]) -> None:
        """Remove what was published under a name, if it is unused when its turn comes."""
        async with self._lock:
            if not unused():
                return
            self._known.pop(name, None)
            url = f"{self._stores.data.rstrip('/')}/{name}"
            where = hand.seen(self._stores, url, HUB)
            top, _, last = where.rstrip("/").rpartition("/")
            await self._reach.inside.clear(where, f"{top}/{ASIDE}{last}/")

    async def bundle(self, name: str, pieces: Sequence[InputPiece]) -> InputPiece:
        """Put inputs together in one folder, since no message can name all of them."""
        folder = self._scratch / hashlib.sha256(name.encode()).hexdigest()[:32]
        try:
            named = [
                InputPiece(hand.seen(self._stores, one.url, HUB), one.path, one.sha256, one.own)
                for one in pieces
            ]
            await folders.bring(self._reach, self._root, named, folder)
            url, digest, _ = await self._send(str(folder), name)
        finally:
            await run_sync(functools.partial(_remove, folder))
        return InputPiece(url, "", digest)

    async def _send(self, path: str, name: str) -> tuple[str, str, bool]:
        url = f"{self._stores.data.rstrip('/')}/{name}"
        where = hand.seen(self._stores, url, HUB)
        receipt = await self._reach.inside.send(path, where, replace=True)
        return url, receipt.sha256 or receipt.digest, receipt.folder


#: What to do where there is no place for data.
NOWHERE = (
    "no store can be reached by all readers of its data: a site by the broker needs a transfer "
    "server, which `flows.data` in pilotage.toml names; an agent that dials this hub needs none"
)


def _path(root: Path, name: str) -> str:
    reach.own(root, name)
    path = os.path.realpath(root / name)
    if not os.path.exists(path):
        raise errors.NotFound(f"there is no {text.show(name)} in the project")
    return path


def _version(path: str) -> str:
    """Return a version that changes with a file, or any file of a folder."""
    found = hashlib.sha256()
    if os.path.isdir(path):
        for item in tree.walk(path):
            found.update(os.fsencode(f"{item.name}\0{item.mark}\0"))
    else:
        found.update(tree.item(os.path.basename(path), os.stat(path)).mark.encode())
    return found.hexdigest()[:16]


def _remove(folder: Path) -> None:
    for one in (folder, folder.with_name(f"{folder.name}.in")):
        shutil.rmtree(one, ignore_errors=True)
    folder.with_name(f"{folder.name}.read").unlink(missing_ok=True)
