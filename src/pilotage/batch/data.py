"""Data of jobs at a site: staged there and back, or served from here while they run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread

from pilotage.base import durable, errors, paths, text
from pilotage.batch import job
from pilotage.batch.connection import SiteConnection
from pilotage.batch.job import BatchJob, ItemFolder
from pilotage.batch.results import Streams
from pilotage.batch.tunnels import Tunnels
from pilotage.data.export import Exports, Layout, lay, reclaim, remove, take
from pilotage.data.image import Images
from pilotage.data.stage import landing
from pilotage.data.stage.digest import Digests
from pilotage.data.stage.pull import Puller
from pilotage.data.stage.push import Pusher


class SiteStaging:
    """Stages and serves the data of all jobs of a site."""

    def __init__(
        self, remote: SiteConnection, tunnels: Tunnels, state: Path, digests: Digests,
        exports: Exports, images: Images,
    ) -> None:  # fmt: skip
        """Keep what is served below `state`; worker nodes come to it through `tunnels`."""
        self._images = images
        self._remote = remote
        self._tunnels = tunnels
        self._state = state
        self._digests = digests
        self._exports = exports
        self._pusher: Pusher | None = None
        self._puller: Puller | None = None
        self._streams = Streams(remote, state)

    @property
    def apart(self) -> bool:
        """Jobs of an array often read the same, and go together when all of it is there."""
        return False

    def brings(self, one: BatchJob) -> bool:
        """Return whether anything must be at the site before a job can be submitted."""
        return job.brings(one)

    async def leaves(self, one: BatchJob, found: dict[str, Any]) -> bool:
        """Return whether a job has left outputs to fetch."""
        return bool(found and (one.outputs or one.optional))

    async def bring(self, one: BatchJob) -> None:
        """Stage the inputs of a job to the site, or serve them to be mounted there."""
        files = await anyio.to_thread.run_sync(job.wanted, one)
        pusher = await self._push()
        if one.spec.data == "mounted":
            await self._serve(one, files)
        elif files:
            one.inputs = await pusher.bring(files)
        if one.spec.image and (pushed := await self._images.find(one.spec.image)):
            found = await pusher.bring([pushed.path])
            one.image = pushed.item(found[pushed.path].sha256)

    async def shaped(self, one: BatchJob) -> None:
        """Do nothing: what a job runs is written when it is ordered."""

    async def home(self, one: BatchJob, folders: ItemFolder, found: dict[str, Any]) -> None:
        """Fetch the outputs of a job, verified by its evidence."""
        if one.spec.data == "mounted":
            await self._exports.close(self._name(one))
            await anyio.to_thread.run_sync(self._publish, one, found)
            return
        if self._puller is None:
            self._puller = Puller(self._remote, folders.root)
        await self._puller.fetch(job.homeward(one, folders, found))

    async def logs(self, some: Sequence[tuple[BatchJob, ItemFolder]]) -> None:
        """Fetch what jobs have written so far."""
        await self._streams.bring(some)

    async def leave(self, one: BatchJob) -> None:
        """Stop serving data to a job."""
        # Also exports of an earlier process, which the job does not record.
        if one.spec.data == "mounted":
            await self._exports.close(self._name(one))
            await anyio.to_thread.run_sync(remove, self._folder(one))

    async def close(self) -> None:
        """Stop all transfers."""
        for one in (self._pusher, self._puller):
            if one is not None:
                await one.close()

    async def _push(self) -> Pusher:
        if self._pusher is None:
            root = (await self._remote.ready()).root
            self._pusher = Pusher(self._remote, root, self._digests)
        return self._pusher

    # -- mounted ---------------------------------------------------------------------------------

    def _name(self, one: BatchJob) -> str:
        return f"{self._remote.name}.{one.key}"

    def _folder(self, one: BatchJob) -> Path:
        return self._state / "mounted" / self._name(one)

    async def _serve(self, one: BatchJob, files: list[str]) -> None:
        """Show a job its inputs in a folder of its own, and serve that to it alone."""
        folder = self._folder(one)
        await self._exports.close(self._name(one))

        def prepare() -> Layout:
            remove(folder)
            folder.mkdir(parents=True, mode=0o700)
            return lay(folder, {job.relative(path, one.base): Path(path) for path in files})

        layout = await anyio.to_thread.run_sync(prepare)
        access = await self._exports.open(self._name(one), layout)
        number = await self._tunnels.open("data", access.port)
        one.mount = {
            "host": self._tunnels.host, "port": number, "user": access.user, "token": access.token,
            "key": access.private_key, "known_hosts": access.host_key, "options": [],
        }  # fmt: skip

    def _publish(self, one: BatchJob, found: dict[str, Any]) -> None:
        """Move the outputs of a job to their places, each file atomically.

        It also stays at the site until the end of the job is on disk: after an earlier crash, all
        of this is done again.
        """
        folder = self._folder(one)
        reclaim(folder)
        for name, local in (one.outputs | one.optional).items():
            if not found.get(name):
                continue
            source = take(folder, job.relative(local, one.base))
            try:
                os.makedirs(os.path.dirname(local), exist_ok=True)
                _place(source, local)
            except (IsADirectoryError, NotADirectoryError, FileExistsError) as error:
                message = f"{text.show(local)} is in the way of an output"
                raise errors.Conflict(message) from error
            except OSError as error:
                message = f"cannot write {text.show(local)}: {error.strerror}"
                raise errors.Unavailable(message) from error


def _place(source: Path, local: str) -> None:
    """Give a file or a folder its name in the project; what else is in that folder stays."""
    aside = durable.aside(local, str(source))
    if source.is_dir() and os.path.lexists(local):
        for file in [one for one in source.rglob("*") if not one.is_dir()]:
            _place(file, paths.inside(local, str(file.relative_to(source))))
    elif source.is_dir():
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(source, aside, copy_function=join)
        landing.LandingPlan([], aside, local).show()
    else:
        join(str(source), aside)
        durable.rename(aside, local)
        # Two names of one file stay two when one is to replace the other.
        Path(aside).unlink(missing_ok=True)


def join(source: str, target: str) -> None:
    """Give a file a second name, or copy it where that cannot be done; it is on disk then."""
    Path(target).unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)
    durable.sync_file(target)
