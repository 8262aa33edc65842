"""Data of jobs at sites with an agent: it goes by the transfer server that the settings name."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from pilotage import errors, text
from pilotage.bus.model import Input
from pilotage.flow import hand
from pilotage.flow.hand import HUB, Piece
from pilotage.hub.flows import reach
from pilotage.hub.flows.inspect import Inspector
from pilotage.hub.flows.model import Unfit
from pilotage.hub.flows.publish import NOWHERE, Publisher
from pilotage.hub.flows.reach import FOLDER, Reach
from pilotage.hub.project import Project
from pilotage.payload.transfer.names import sync_folder

#: Where data of jobs lies below the store, beside that of workflows.
_JOBS = "jobs"
#: What a folder is called while it is removed.
_ASIDE = ".cleared-"
#: Transfers at once.
_AT_ONCE = 16


class EdgeData:
    """Carries inputs and outputs of jobs; see `edge.place.Data`."""

    def __init__(self, project: Project) -> None:
        """Take the settings of the project."""
        flows = project.settings.flows
        self._root = project.root
        self._scratch = project.state / FOLDER / "scratch"
        self._stores = reach.stores(flows, project.state)
        self._reach = Reach(flows, project.root, project.state)
        self._publisher = Publisher(self._reach, self._stores, project.root, self._scratch)
        self._inspector = Inspector(self._reach.inside, self._stores, self._scratch)
        self._lanes = anyio.Semaphore(_AT_ONCE)

    async def publish(self, paths: Mapping[str, str], site: str) -> tuple[Input, ...]:
        """Put files of the project where a site can fetch them; each has its path there."""
        found = []
        for path, there in paths.items():
            own = path.removeprefix(f"{self._root}/")
            async with self._lanes:
                try:
                    piece = await self._publisher.own(_JOBS, Piece(own, there))
                except Unfit as error:
                    raise errors.UsageError(error.reason) from None
            url = hand.seen(self._stores, piece.url, site)
            found.append(Input(url=url, path=there, sha256=piece.sha256))
        return tuple(found)

    def folder(self, job: int, number: int, site: str) -> tuple[str, str]:
        """Name the folder for the outputs of an attempt: as the site names it, and as we do."""
        store = hand.base(self._stores, site, [HUB])
        if store is None:
            raise errors.UsageError(NOWHERE)
        made = hand.place(store, f"{_JOBS}/{self._mark()}/{job}.{number}/")
        return made.write, made.read

    def _mark(self) -> str:
        """Tell projects apart that use one transfer server."""
        return hashlib.sha256(os.fsencode(self._root)).hexdigest()[:16]

    async def home(self, place: str, digest: str, files: Mapping[str, str]) -> None:
        """Bring outputs home: by path in the folder, where each goes to."""
        async with self._lanes:
            found = await self._inspector.look(place, digest)
            if found.trouble:
                raise errors.Damaged(found.trouble)
            aside = self._scratch / secrets.token_hex(8)
            try:
                await self._reach.inside.fetch(found.url, str(aside), pinned=found.digest)
                await run_sync(_deliver, aside, files)
            finally:
                await run_sync(lambda: shutil.rmtree(aside, ignore_errors=True))

    async def clear(self, place: str) -> None:
        """Remove the outputs of an attempt from where the site has sent them."""
        url = hand.seen(self._stores, place, HUB).rstrip("/")
        top, _, name = url.rpartition("/")
        await self._reach.inside.clear(f"{url}/", f"{top}/{_ASIDE}{name}/")


def _deliver(aside: Path, files: Mapping[str, str]) -> None:
    """Give files that have arrived their places; each is there as a whole or not at all."""
    for below, target in files.items():
        source = aside / below
        if not source.exists():
            raise errors.NotFound(f"declared output is missing: {text.show(target)}")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
            continue
        part = f"{os.path.dirname(target)}/.{os.path.basename(target)}.{secrets.token_hex(4)}"
        try:
            shutil.copyfile(source, part)
            with open(part, "rb") as file:
                os.fsync(file.fileno())
            os.replace(part, target)
        finally:
            Path(part).unlink(missing_ok=True)
        sync_folder(os.path.dirname(target))
